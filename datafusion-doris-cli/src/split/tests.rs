#![allow(clippy::unwrap_used, clippy::expect_used)]

use datafusion::sql::sqlparser::dialect::GenericDialect;

use super::*;

fn split(text: &str) -> Vec<String> {
    let mut script = Script::new(text);
    std::iter::from_fn(|| script.next_item(&GenericDialect {}))
        .map(|item| match item {
            Ok(Item { kind: ItemKind::Sql(sql), .. }) => sql.to_owned(),
            Ok(Item { kind: ItemKind::Command(command), .. }) => format!("\\{command}"),
            Err(error) => format!("error: {error}"),
        })
        .collect()
}

/// C075
#[test]
fn semicolons_in_text_and_comments_end_nothing() {
    assert_eq!(split("SELECT 'a;b'; SELECT 2 -- c; d\n ; SELECT 3"), ["SELECT 'a;b'", "SELECT 2 -- c; d", "SELECT 3"]);
    assert_eq!(split("SELECT \"a;b\"; SELECT /* ; */ `c;d`;"), ["SELECT \"a;b\"", "SELECT /* ; */ `c;d`"]);
    assert_eq!(split("SELECT 'it''s; x'; SELECT $$a;b$$"), ["SELECT 'it''s; x'", "SELECT $$a;b$$"]);
}

/// C076
#[test]
fn a_backslash_in_text_is_a_character_like_others() {
    assert_eq!(split(r"SELECT '\'; SELECT '\\'; SELECT 3"), [r"SELECT '\'", r"SELECT '\\'", "SELECT 3"]);
    assert_eq!(split(r"SELECT E'a\';b'; SELECT 2"), [r"SELECT E'a\';b'", "SELECT 2"]);
}

#[test]
fn statements_for_doris_follow_the_rules_of_doris() {
    assert_eq!(
        split("\\doris INSERT INTO t VALUES ('a\\';b')\n  , ('c') ; SELECT '\\';"),
        ["\\doris INSERT INTO t VALUES ('a\\';b')\n  , ('c')", "SELECT '\\'"]
    );
    assert_eq!(split("\\doris SELECT 1 # no; end\n + 2; SELECT 3"), ["\\doris SELECT 1 # no; end\n + 2", "SELECT 3"]);
}

#[test]
fn commands_take_a_line_and_those_with_a_statement_run_to_its_end() {
    assert_eq!(
        split("-- first\n\\echo it's; fine\n\\job m INSERT INTO a\nSELECT ';' FROM b;\n  \\jobs\n\\q"),
        ["\\echo it's; fine", "\\job m INSERT INTO a\nSELECT ';' FROM b", "\\jobs", "\\q"]
    );
    assert_eq!(split("SELECT 1; \\q"), ["SELECT 1", "\\q"]);
}

#[test]
fn comments_and_empty_statements_run_nothing() {
    assert_eq!(split(" ;; -- only; this\n /* and\n\\this */ ;\n-- end"), Vec::<String>::new());
    assert_eq!(split("-- a\n\\jobs\n-- end"), ["\\jobs"]);
    assert_eq!(split("  \n\t"), Vec::<String>::new());
}

#[test]
fn a_line_inside_a_string_is_no_command() {
    assert_eq!(split("SELECT 'a\n\\q\n;b' ; SELECT 2"), ["SELECT 'a\n\\q\n;b'", "SELECT 2"]);
}

#[test]
fn a_command_inside_an_unfinished_statement_is_an_error_with_both_lines() {
    assert_eq!(
        split("SELECT 1;\n\nSELECT 2\n\\jobs\nSELECT 3;"),
        [
            "SELECT 1",
            "error: the statement of line 3 is not ended by `;` before the command of line 4",
            "\\jobs",
            "SELECT 3"
        ]
    );
}

#[test]
fn items_know_their_line_and_whether_they_are_complete() {
    let mut script = Script::new("SELECT 1;\n\n SELECT\n2");
    let first = script.next_item(&GenericDialect {}).unwrap().unwrap();
    let second = script.next_item(&GenericDialect {}).unwrap().unwrap();
    assert_eq!((first.line, first.terminated), (1, true));
    assert_eq!((second.line, second.terminated), (3, false));
}

#[test]
fn input_is_complete_when_every_statement_is() {
    let complete = |text| is_complete(text, &GenericDialect {});
    for text in ["", "SELECT 1;", "SELECT ';' ; -- x", "\\jobs", "\\doris SELECT 1;", "SELECT 1;\\q", "-- x"] {
        assert!(complete(text), "{text}");
    }
    for text in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "\\doris SELECT 1", "SELECT 1 -- ;", "SELECT /* ;"] {
        assert!(!complete(text), "{text}");
    }
}

#[test]
fn placeholders_hide_what_they_hold() {
    assert_eq!(split("SELECT '${env:A:-x'; y}'; SELECT 2"), ["SELECT '${env:A:-x'; y}'", "SELECT 2"]);
    assert_eq!(split("SELECT $${a}; SELECT 2"), ["SELECT $${a}", "SELECT 2"]);
}
