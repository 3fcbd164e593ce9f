//! CREATE, ALTER and DROP USER, roles, GRANT, REVOKE, passwords, and what SHOW tells about them.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{check_catalog, done};
use super::output::text_rows;
use super::show::{Row, cell};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::users::{Grants, Identity, Password, Privilege, Scope, User, denied};

/// Managing users needs GRANT or ADMIN.
fn check_manager(session: &Session) -> Result<(), SqlError> {
    let users = &session.engine.users;
    let may = |privilege| users.allows(&session.user, "", "", privilege);
    match may(Privilege::Grant) || may(Privilege::Admin) {
        true => Ok(()),
        false => Err(denied("GRANT")),
    }
}

/// A name, quoted as a string or not.
fn name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    match cursor.peek() {
        Some(Token::SingleQuotedString(_)) => cursor.string(),
        _ => cursor.ident(),
    }
}

/// `u`, `u@host`, `'u'@'host'`; without a host any host is meant.
fn identity(cursor: &mut Cursor<'_>) -> Result<Identity, SqlError> {
    let user = name(cursor)?;
    if !cursor.eat_token(&Token::AtSign) {
        return Ok(Identity { name: user, host: "%".to_owned() });
    }
    if cursor.peek() == Some(&Token::LParen) || cursor.peek() == Some(&Token::LBracket) {
        return Err(SqlError::not_served("users of a domain"));
    }
    Ok(Identity { name: user, host: name(cursor)? })
}

/// `IDENTIFIED BY [PASSWORD] 'text'`, after IDENTIFIED.
fn password(cursor: &mut Cursor<'_>) -> Result<Password, SqlError> {
    cursor.expect("BY")?;
    if cursor.eat("PASSWORD") { Password::of_hash(&cursor.string()?) } else { Ok(Password::of(&cursor.string()?)) }
}

/// `CREATE USER ...`, `CREATE ROLE ...`, after CREATE; the cursor stands on USER or ROLE.
pub(super) fn create(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_manager(session)?;
    let role = cursor.eat("ROLE");
    if !role {
        cursor.expect("USER")?;
    }
    let keep = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    if role {
        let role = name(cursor)?;
        if cursor.eat("COMMENT") {
            cursor.string()?;
        }
        cursor.expect_end()?;
        session.engine.users.create_role(&role, keep)?;
        return Ok(done());
    }
    let id = identity(cursor)?;
    let secret = if cursor.eat("IDENTIFIED") { password(cursor)? } else { Password::of("") };
    let role = if cursor.eat_all(&["DEFAULT", "ROLE"]) { Some(name(cursor)?) } else { None };
    let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
    if !cursor.at_end() {
        return Err(SqlError::not_served(format!("CREATE USER with {}", cursor.rest())));
    }
    session.engine.users.create(id, secret, &comment, role, keep)?;
    Ok(done())
}

/// `ALTER USER [IF EXISTS] u [IDENTIFIED BY ..] [COMMENT ..]`, after ALTER.
pub(super) fn alter(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_manager(session)?;
    cursor.expect("USER")?;
    let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
    let id = identity(cursor)?;
    let secret = if cursor.eat("IDENTIFIED") { Some(password(cursor)?) } else { None };
    let comment = if cursor.eat("COMMENT") { Some(cursor.string()?) } else { None };
    if !cursor.at_end() {
        return Err(SqlError::not_served(format!("ALTER USER with {}", cursor.rest())));
    }
    let changed = session.engine.users.alter(&id, |user| {
        secret.into_iter().for_each(|secret| user.password = secret);
        comment.into_iter().for_each(|comment| user.comment = comment);
    });
    match changed {
        Err(_) if if_exists => Ok(done()),
        other => other.map(|()| done()),
    }
}

/// `DROP USER [IF EXISTS] u`, `DROP ROLE [IF EXISTS] r`, after DROP.
pub(super) fn drop(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_manager(session)?;
    let role = cursor.eat("ROLE");
    if !role {
        cursor.expect("USER")?;
    }
    let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
    if role {
        let role = name(cursor)?;
        cursor.expect_end()?;
        session.engine.users.drop_role(&role, if_exists)?;
    } else {
        let id = identity(cursor)?;
        cursor.expect_end()?;
        session.engine.users.drop(&id, if_exists)?;
    }
    Ok(done())
}

/// `SET PASSWORD [FOR u] = PASSWORD('text') | '*hash'`, after PASSWORD.
pub(super) fn set_password(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let id = if cursor.eat("FOR") {
        let id = identity(cursor)?;
        if id.name != session.user {
            check_manager(session)?;
        }
        id
    } else {
        Identity { name: session.user.clone(), host: "%".to_owned() }
    };
    cursor.expect_token(&Token::Eq)?;
    let secret = if cursor.eat("PASSWORD") {
        cursor.expect_token(&Token::LParen)?;
        let text = cursor.string()?;
        cursor.expect_token(&Token::RParen)?;
        Password::of(&text)
    } else {
        match cursor.string()?.as_str() {
            "" => Password::of(""),
            hash => Password::of_hash(hash)?,
        }
    };
    cursor.expect_end()?;
    session.engine.users.alter(&id, |user| user.password = secret)?;
    Ok(done())
}

/// `SET PROPERTY [FOR 'u'] 'key' = 'value', ...`, after PROPERTY.
pub(super) fn set_property(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_manager(session)?;
    let user = if cursor.eat("FOR") { name(cursor)? } else { session.user.clone() };
    loop {
        let key = cursor.string()?;
        cursor.expect_token(&Token::Eq)?;
        let value = cursor.string()?;
        if !key.eq_ignore_ascii_case("max_user_connections") {
            return Err(SqlError::not_served(format!("user property {key}")));
        }
        let limit = value
            .parse::<usize>()
            .ok()
            .filter(|n| (1..=10_000).contains(n))
            .ok_or_else(|| SqlError::detail(format!("{key} is not number, or out of range 1 to 10000")))?;
        let id = Identity { name: user.clone(), host: "%".to_owned() };
        session.engine.users.alter(&id, |user| user.max_connections = Some(limit))?;
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    Ok(done())
}

/// Whom a GRANT is for.
enum Grantee {
    User(Identity),
    Role(String),
}

/// `GRANT privileges ON place TO u | ROLE r`, `GRANT roles TO u`, and REVOKE with FROM; after the first word.
pub(super) fn grant(session: &Session, cursor: &mut Cursor<'_>, revoke: bool) -> Result<StatementResult, SqlError> {
    check_manager(session)?;
    let mut names = vec![name(cursor)?];
    while cursor.eat_token(&Token::Comma) {
        names.push(name(cursor)?);
    }
    let preposition = if revoke { "FROM" } else { "TO" };
    let users = &session.engine.users;
    if cursor.eat(preposition) {
        let id = identity(cursor)?;
        cursor.expect_end()?;
        names.iter().try_for_each(|role| users.check_role(role))?;
        users.alter(&id, |user| match revoke {
            true => user.roles.retain(|role| !names.contains(role)),
            false => user.roles.extend(names),
        })?;
        return Ok(done());
    }
    if cursor.peek() == Some(&Token::LParen) {
        return Err(SqlError::not_served("privileges on columns"));
    }
    let privileges = privileges(&names)?;
    cursor.expect("ON")?;
    let scope = scope(session, cursor)?;
    if scope != Scope::Global && privileges.iter().any(|p| matches!(p, Privilege::Admin | Privilege::Node)) {
        return Err(SqlError::detail("ADMIN_PRIV and NODE_PRIV can only be granted/revoked on *.*.*"));
    }
    cursor.expect(preposition)?;
    let grantee = if cursor.eat("ROLE") { Grantee::Role(name(cursor)?) } else { Grantee::User(identity(cursor)?) };
    cursor.expect_end()?;
    let change = |grants: &mut Grants| match revoke {
        true => grants.remove(&scope, &privileges),
        false => {
            grants.add(scope.clone(), privileges.iter().copied());
            true
        }
    };
    let changed = match &grantee {
        Grantee::User(id) => users.alter(id, |user| change(&mut user.grants))?,
        Grantee::Role(role) => users.alter_role(role, change)?,
    };
    match changed {
        true => Ok(done()),
        false => Err(SqlError::detail("the privileges to revoke were not granted there")),
    }
}

fn privileges(names: &[String]) -> Result<Vec<Privilege>, SqlError> {
    let mut out = Vec::new();
    for name in names {
        match Privilege::parse(name) {
            Some(privilege) => out.push(privilege),
            None if name.eq_ignore_ascii_case("ALL") => out.extend(Privilege::GRANTABLE),
            None => return Err(SqlError::detail(format!("Unknown privilege: {name}"))),
        }
    }
    Ok(out)
}

/// `*.*.*`, `ctl.*.*`, `ctl.db.*`, `ctl.db.t`, `db.*`, `db.t`, `t`.
fn scope(session: &Session, cursor: &mut Cursor<'_>) -> Result<Scope, SqlError> {
    for object in ["RESOURCE", "WORKLOAD", "COMPUTE", "CLUSTER", "STAGE", "STORAGE"] {
        if cursor.is_word(object) && cursor.peek_at(1) != Some(&Token::Period) {
            return Err(SqlError::not_served(format!("privileges on a {}", object.to_lowercase())));
        }
    }
    let part = |cursor: &mut Cursor<'_>| match cursor.eat_token(&Token::Mul) {
        true => Ok("*".to_owned()),
        false => cursor.ident(),
    };
    let mut parts = vec![part(cursor)?];
    while parts.len() < 3 && cursor.eat_token(&Token::Period) {
        parts.push(part(cursor)?);
    }
    if parts.iter().all(|part| part == "*") {
        return Ok(Scope::Global);
    }
    if parts.len() == 3 {
        check_catalog(&parts.remove(0))?;
    }
    if parts.len() == 1 {
        parts.insert(0, session.database.clone().ok_or_else(SqlError::no_database)?);
    }
    match (parts[0].as_str(), parts[1].as_str()) {
        ("*", "*") => Ok(Scope::Catalog),
        ("*", _) => Err(SqlError::detail("Do not support format *.tbl")),
        (db, "*") => Ok(Scope::Database(db.to_owned())),
        (db, table) => Ok(Scope::Table(db.to_owned(), table.to_owned())),
    }
}

/// `SHOW [ALL] GRANTS [FOR u]`, after GRANTS.
pub(super) fn show_grants(session: &Session, cursor: &mut Cursor<'_>, all: bool) -> Result<StatementResult, SqlError> {
    let wanted = if cursor.eat("FOR") { Some(identity(cursor)?) } else { None };
    cursor.expect_end()?;
    if all || wanted.as_ref().is_some_and(|id| id.name != session.user) {
        check_manager(session)?;
    }
    let accounts = session.engine.users.list();
    if let Some(wanted) = &wanted
        && !accounts.iter().any(|(id, _)| id == wanted)
    {
        return Err(SqlError::detail(format!("User {wanted} does not exist")));
    }
    let names = [
        "UserIdentity",
        "Comment",
        "Password",
        "Roles",
        "GlobalPrivs",
        "CatalogPrivs",
        "DatabasePrivs",
        "TablePrivs",
        "ColPrivs",
        "ResourcePrivs",
        "CloudClusterPrivs",
        "CloudStagePrivs",
        "StorageVaultPrivs",
        "WorkloadGroupPrivs",
        "ComputeGroupPrivs",
    ];
    let row = |(id, user): (Identity, User)| -> Row {
        let roles: Vec<&str> = user.roles.iter().map(String::as_str).collect();
        let mut row = vec![
            cell(&id),
            cell(&user.comment),
            cell(if user.password.is_set() { "Yes" } else { "No" }),
            cell(roles.join(",")),
        ];
        row.extend(user.grants.cells());
        row.extend([None, None, None, None, None, cell("normal: Usage_priv"), None]);
        row
    };
    let shown = accounts.into_iter().filter(|(id, _)| match &wanted {
        Some(wanted) => id == wanted,
        None => all || id.name == session.user,
    });
    text_rows(&names, shown.map(row).collect())
}

/// `SHOW ROLES`
pub(super) fn show_roles(session: &Session, cursor: &Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect_end()?;
    check_manager(session)?;
    let names = [
        "Name",
        "Comment",
        "Users",
        "GlobalPrivs",
        "CatalogPrivs",
        "DatabasePrivs",
        "TablePrivs",
        "ResourcePrivs",
        "CloudClusterPrivs",
        "CloudStagePrivs",
        "StorageVaultPrivs",
        "WorkloadGroupPrivs",
        "ComputeGroupPrivs",
    ];
    let rows = session.engine.users.roles().into_iter().map(|(role, grants, users)| {
        let users: Vec<String> = users.iter().map(ToString::to_string).collect();
        let mut row = vec![cell(role), cell(""), cell(users.join(", "))];
        row.extend(grants.cells());
        row.resize(names.len(), None);
        row
    });
    text_rows(&names, rows.collect())
}

/// `SHOW PROPERTY [FOR u] [LIKE ..]`
pub(super) fn show_property(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let user = if cursor.eat("FOR") { name(cursor)? } else { session.user.clone() };
    if user != session.user {
        check_manager(session)?;
    }
    let filter = super::show::Filter::read(cursor)?;
    if !session.engine.users.has_name(&user) {
        return Err(SqlError::detail(format!("User {user} does not exist")));
    }
    let default = session.engine.config().flight.max_user_connections;
    let limit = session.engine.users.max_connections(&user).unwrap_or(default);
    let mut rows: Vec<Row> = [
        ("cpu_resource_limit", "-1".to_owned()),
        ("default_compute_group", String::new()),
        ("default_load_cluster", String::new()),
        ("default_workload_group", "normal".to_owned()),
        ("exec_mem_limit", "-1".to_owned()),
        ("insert_timeout", "-1".to_owned()),
        ("max_query_instances", "-1".to_owned()),
        ("max_user_connections", limit.to_string()),
        ("parallel_fragment_exec_instance_num", "-1".to_owned()),
        ("query_timeout", "-1".to_owned()),
        ("resource_tags", String::new()),
        ("sql_block_rules", String::new()),
    ]
    .into_iter()
    .map(|(key, value)| vec![cell(key), cell(value)])
    .collect();
    let names = ["Key", "Value"];
    filter.apply(&names, &mut rows, 0)?;
    text_rows(&names, rows)
}
