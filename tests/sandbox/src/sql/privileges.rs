//! What a statement needs before it runs. Reads are checked where names are bound.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{database_name, table_name};
use crate::error::SqlError;
use crate::session::Session;
use crate::users::{Privilege, denied};

/// 1142 without the privilege on a table.
pub(super) fn check_table(session: &Session, db: &str, table: &str, privilege: Privilege) -> Result<(), SqlError> {
    if session.engine.users.allows(&session.user, db, table, privilege) {
        return Ok(());
    }
    Err(SqlError::coded(
        1142,
        format!(
            "{} command denied to user '{}'@'{}' for table '{table}'",
            privilege.word(),
            session.user,
            session.client_ip
        ),
    ))
}

/// 1044 without the privilege on a database.
fn check_database(session: &Session, db: &str, privilege: Privilege) -> Result<(), SqlError> {
    match session.engine.users.allows(&session.user, db, "", privilege) {
        true => Ok(()),
        false => Err(no_database(session, db)),
    }
}

fn no_database(session: &Session, db: &str) -> SqlError {
    SqlError::coded(1044, format!("Access denied for user '{}' to database '{db}'", session.user))
}

/// 1227 without one of the cluster's privileges.
pub(super) fn check_global(session: &Session, any_of: &[Privilege]) -> Result<(), SqlError> {
    let users = &session.engine.users;
    if any_of.iter().any(|privilege| users.allows(&session.user, "", "", *privilege)) {
        return Ok(());
    }
    let words: Vec<&str> = any_of.iter().map(|privilege| privilege.word()).collect();
    Err(denied(&words.join("/")))
}

/// 1044 when nothing in the database is open to the user.
pub(crate) fn check_use(session: &Session, db: &str) -> Result<(), SqlError> {
    match is_visible(session, db, "") {
        true => Ok(()),
        false => Err(no_database(session, db)),
    }
}

/// Whether SHOW lists a database (empty `table`) or table.
pub(crate) fn is_visible(session: &Session, db: &str, table: &str) -> bool {
    db.eq_ignore_ascii_case("information_schema")
        || db.eq_ignore_ascii_case("mysql")
        || session.engine.users.sees(&session.user, db, table)
}

/// The object and privilege that the first words of a statement ask for.
enum Need {
    Table(Privilege),
    Database(Privilege),
    /// Any privilege on the table, for SHOW and DESC.
    Visible,
    Global(&'static [Privilege]),
    Nothing,
}

/// Checks a statement that is no query.
pub(super) fn check(session: &Session, cursor: &Cursor<'_>) -> Result<(), SqlError> {
    // The administrator needs no reading ahead.
    if session.engine.is_admin(&session.user) {
        return Ok(());
    }
    let mut ahead = Cursor { text: cursor.text, tokens: cursor.tokens, at: cursor.at };
    match need(&mut ahead) {
        Need::Nothing => Ok(()),
        Need::Global(any_of) => check_global(session, any_of),
        Need::Database(privilege) => {
            skip_existence(&mut ahead);
            // A name that cannot be read is refused by the statement itself.
            database_name(&mut ahead).map_or(Ok(()), |db| check_database(session, &db, privilege))
        }
        Need::Table(privilege) => {
            skip_existence(&mut ahead);
            table_name(session, &mut ahead).map_or(Ok(()), |(db, table)| check_table(session, &db, &table, privilege))
        }
        Need::Visible => {
            let Ok((mut db, table)) = table_name(session, &mut ahead) else { return Ok(()) };
            if (ahead.eat("FROM") || ahead.eat("IN"))
                && let Ok(named) = database_name(&mut ahead)
            {
                db = named;
            }
            match is_visible(session, &db, &table) {
                true => Ok(()),
                false => check_table(session, &db, &table, Privilege::Select),
            }
        }
    }
}

fn skip_existence(cursor: &mut Cursor<'_>) {
    if !cursor.eat_all(&["IF", "NOT", "EXISTS"]) {
        cursor.eat_all(&["IF", "EXISTS"]);
    }
}

/// Reads the words; the cursor is left on the name.
fn need(cursor: &mut Cursor<'_>) -> Need {
    let Ok(first) = cursor.ident() else { return Need::Nothing };
    let on = |cursor: &mut Cursor<'_>, privilege: Privilege| {
        if cursor.eat("DATABASE") || cursor.eat("SCHEMA") {
            return Need::Database(privilege);
        }
        cursor.eat_all(&["OR", "REPLACE"]);
        cursor.eat("EXTERNAL");
        cursor.eat("MATERIALIZED");
        match cursor.eat("TABLE") || cursor.eat("VIEW") {
            true => Need::Table(privilege),
            false if cursor.is_word("USER") || cursor.is_word("ROLE") => Need::Nothing,
            false => Need::Global(&[Privilege::Admin]),
        }
    };
    match first.to_ascii_uppercase().as_str() {
        "INSERT" => {
            if !cursor.eat("INTO") {
                cursor.eat("OVERWRITE");
            }
            cursor.eat("TABLE");
            Need::Table(Privilege::Load)
        }
        "UPDATE" => Need::Table(Privilege::Load),
        "DELETE" => {
            cursor.eat("FROM");
            Need::Table(Privilege::Load)
        }
        "TRUNCATE" => {
            cursor.eat("TABLE");
            Need::Table(Privilege::Load)
        }
        "CREATE" => on(cursor, Privilege::Create),
        "ALTER" => on(cursor, Privilege::Alter),
        "DROP" => on(cursor, Privilege::Drop),
        "RECOVER" | "ADMIN" | "INSTALL" | "WARM" | "BACKUP" | "RESTORE" => Need::Global(&[Privilege::Admin]),
        "DESC" | "DESCRIBE" if !cursor.is_word("FUNCTION") => Need::Visible,
        "SHOW" => show(cursor),
        _ => Need::Nothing,
    }
}

fn show(cursor: &mut Cursor<'_>) -> Need {
    cursor.eat("FULL");
    let Ok(word) = cursor.ident() else { return Need::Nothing };
    let from_table = |cursor: &mut Cursor<'_>| match cursor.eat("FROM") || cursor.eat("IN") {
        true => Need::Visible,
        false => Need::Nothing,
    };
    match word.to_ascii_uppercase().as_str() {
        "BACKENDS" | "BROKER" => Need::Global(&[Privilege::Admin, Privilege::Node]),
        "CREATE" if cursor.eat("TABLE") || cursor.eat("VIEW") => Need::Visible,
        "COLUMNS" | "FIELDS" | "PARTITIONS" | "INDEX" | "INDEXES" | "KEYS" => from_table(cursor),
        "TABLETS" | "TRASH" => Need::Global(&[Privilege::Admin]),
        "TABLES" | "TABLE" | "VIEWS" if cursor.peek_at(1) != Some(&Token::Period) => Need::Nothing,
        _ => Need::Nothing,
    }
}
