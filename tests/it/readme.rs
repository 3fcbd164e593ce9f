//! The README tells the truth.

use datafusion_doris::options::OptionKey;

use crate::cli::shell;

const README: &str = include_str!("../../README.md");

#[test]
fn the_option_table_is_the_one_of_the_code() {
    let table = OptionKey::markdown_table();
    assert!(README.contains(&table), "README.md has a stale option table, it must hold:\n{table}");
}

#[test]
fn the_type_table_is_the_one_of_the_code() {
    let table = datafusion_doris::types::type_table();
    let page = include_str!("../../docs/types.md");
    assert!(page.contains(&table), "docs/types.md has a stale table, it must hold:\n{table}");
}

#[test]
fn the_commands_that_ci_runs_are_there() {
    for name in ["main job", "tests"] {
        assert!(README.contains(&format!("<!-- ci: {name} -->\n```sh\n")), "no block '{name}'");
    }
}

#[test]
fn the_commands_of_the_shell_are_those_of_its_help() {
    let help = datafusion_doris_cli::command::help();
    assert!(README.contains(&help), "README.md has stale shell commands, it must hold:\n{help}");
}

/// The block that shows the output of `command`.
fn shown(command: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("<!-- output: {command} -->\n```text\n")).expect("a block");
    rest.split_once("\n```\n").expect("its end").0
}

#[tokio::test]
async fn jobs_are_listed_and_shown_as_in_the_readme() {
    let jobs = ["jobs", "--dir", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jobs"), "-q"];
    let list = shell(&[&jobs[..], &["list"]].concat()).await;
    assert_eq!((list.code, list.out.trim_end()), (0, shown("jobs list")), "{}", list.err);
    let show = shell(&[&jobs[..], &["show", "orders"]].concat()).await;
    // The lag is that of now.
    let from_checkpoints = show.out.find("== checkpoints").map(|at| show.out[at..].trim_end());
    assert_eq!((show.code, from_checkpoints), (0, Some(shown("jobs show"))), "{}", show.err);
}

#[tokio::test]
async fn the_modes_give_what_is_shown() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/changelog_modes.sql");
    let shown = shown("examples/changelog_modes.sql");
    let run = shell(&["--sandbox", "-q", "-f", example]).await;
    assert_eq!((run.code, run.out.trim_end()), (0, shown), "{}", run.err);
}
