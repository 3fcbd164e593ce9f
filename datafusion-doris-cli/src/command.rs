//! Backslash commands: what the shell does beside SQL. They work alike in files, in `-c` and at the prompt.

use std::time::Duration;

use crate::render::Format;
use crate::substitute::{self, Lookup, SubstituteError};

/// How long `\catchup` waits when it is not told.
pub const DEFAULT_CATCH_UP: Duration = Duration::from_secs(60);

/// A backslash command with its arguments. Placeholders are replaced in line arguments; statements still hold theirs.
#[derive(Clone, PartialEq, Eq)]
pub enum Command {
    /// `\doris <statement>;`
    Doris(String),
    /// `\connect URL [USER [PASSWORD]]`
    Connect {
        /// MySQL protocol address, `jdbc:mysql://host:port` or `host:port`.
        url: String,
        /// Doris user, `root` by default.
        user: String,
        /// Password, empty by default.
        password: String,
    },
    /// `\job NAME <continuous INSERT>;`
    Job {
        /// Name the other commands know the job by.
        name: String,
        /// The statement.
        sql: String,
    },
    /// `\jobs`
    Jobs,
    /// `\catchup NAME [SECONDS]`
    CatchUp {
        /// The job.
        name: String,
        /// How long to wait.
        timeout: Duration,
    },
    /// `\wait NAME`
    Wait(String),
    /// `\stop NAME`
    Stop(String),
    /// `\assert <query>;`
    Assert(String),
    /// `\assert_empty <query>;`
    AssertEmpty(String),
    /// `\d`
    ListTables,
    /// `\d TABLE`
    Describe(String),
    /// `\format NAME`
    SetFormat(Format),
    /// `\format`
    ShowFormat,
    /// `\timing [on|off]`
    Timing(Option<bool>),
    /// `\echo TEXT`
    Echo(String),
    /// `\help`
    Help,
    /// `\q`
    Quit,
}

/// What stands after the name of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// Arguments up to the end of the line.
    Line,
    /// A DataFusion statement up to its `;`.
    Sql,
    /// A Doris statement up to its `;`.
    DorisSql,
}

/// A command that cannot be run as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No command has this name.
    #[error("unknown command `\\{0}`: see `\\help`")]
    Unknown(String),
    /// The arguments do not fit.
    #[error("wrong arguments for `\\{name}`: usage `{usage}`")]
    Usage {
        /// The command.
        name: &'static str,
        /// How it is written.
        usage: &'static str,
    },
    /// A placeholder in an argument has no value.
    #[error(transparent)]
    Substitute(#[from] SubstituteError),
}

/// A command as `\help` shows it.
struct Entry {
    name: &'static str,
    carries: Carries,
    usage: &'static str,
    help: &'static str,
}

const fn entry(name: &'static str, carries: Carries, usage: &'static str, help: &'static str) -> Entry {
    Entry { name, carries, usage, help }
}

const ENTRIES: &[Entry] = &[
    entry("doris", Carries::DorisSql, r"\doris STATEMENT;", "send a statement to Doris itself (MySQL protocol)"),
    entry("connect", Carries::Line, r"\connect URL [USER [PASSWORD]]", "choose the server of \\doris (default root)"),
    entry("job", Carries::Sql, r"\job NAME INSERT ...;", "run a continuous INSERT in the background"),
    entry("jobs", Carries::Line, r"\jobs", "list the jobs and how far they are"),
    entry("catchup", Carries::Line, r"\catchup NAME [SECONDS]", "wait until all earlier changes are written (60)"),
    entry("wait", Carries::Line, r"\wait NAME", "wait until a job ends by itself"),
    entry("stop", Carries::Line, r"\stop NAME", "end a job after its current epoch"),
    entry("assert", Carries::Sql, r"\assert QUERY;", "fail unless the query gives one row, all of it true"),
    entry("assert_empty", Carries::Sql, r"\assert_empty QUERY;", "fail if the query gives rows"),
    entry("d", Carries::Line, r"\d [TABLE]", "list the tables, or the columns of one"),
    entry("format", Carries::Line, r"\format [NAME]", "show or set the output format"),
    entry("timing", Carries::Line, r"\timing [on|off]", "show how long statements take"),
    entry("echo", Carries::Line, r"\echo TEXT", "print a line"),
    entry("help", Carries::Line, r"\help", "this list (also \\?)"),
    entry("q", Carries::Line, r"\q", "leave (also \\quit)"),
];

/// The entry of a command as it was typed, aliases included. A `;` after the bare name is forgiven.
fn find(name: &str) -> Option<&'static Entry> {
    let name = match name.trim_end_matches(';') {
        "?" => "help",
        "quit" => "q",
        name => name,
    };
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// What stands after the command `name` (without its backslash). Unknown commands take their line.
pub fn carries(name: &str) -> Carries {
    find(name).map_or(Carries::Line, |entry| entry.carries)
}

/// The names of all commands, without the backslash.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// The text of `\help`.
pub fn help() -> String {
    let mut text = String::from("Statements end with `;`. Commands:\n");
    for Entry { usage, help, .. } in ENTRIES {
        text.push_str(&format!("  {usage:<31} {help}\n"));
    }
    text.push_str(
        "Placeholders: ${fenodes} ${jdbc_url} ${s3_endpoint} ${env:NAME} ${env:NAME:-default}; `$${` is a plain `${`\n",
    );
    text
}

impl Command {
    /// Parses a command without its backslash and its `;`, replacing placeholders in the arguments of line commands.
    ///
    /// # Errors
    /// [`CommandError`] for an unknown name, arguments that do not fit, or a placeholder without a value.
    pub fn parse(text: &str, values: &dyn Lookup) -> Result<Self, CommandError> {
        let (name, rest) = match text.split_once(char::is_whitespace) {
            Some((name, rest)) => (name, rest.trim()),
            None => (text, ""),
        };
        let entry = find(name).ok_or_else(|| CommandError::Unknown(name.to_owned()))?;
        let usage = CommandError::Usage { name: entry.name, usage: entry.usage };
        if entry.name == "echo" {
            return Ok(Self::Echo(substitute::in_text(rest, values)?));
        }
        if entry.carries != Carries::Line {
            return Self::with_statement(entry.name, rest).ok_or(usage);
        }
        // Split before the values go in: a value with blanks stays one argument.
        let arguments = words(rest)
            .ok_or_else(|| usage.clone())?
            .iter()
            .map(|word| substitute::in_text(word, values))
            .collect::<Result<Vec<_>, _>>()?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Self::with_arguments(entry.name, &arguments).ok_or(usage)
    }

    /// Whether it runs a statement or waits for a job, so that its time is worth a line.
    pub fn takes_time(&self) -> bool {
        match self {
            Self::Doris(_) | Self::Assert(_) | Self::AssertEmpty(_) | Self::Job { .. } => true,
            Self::CatchUp { .. } | Self::Wait(_) | Self::Stop(_) => true,
            Self::Connect { .. } | Self::Jobs | Self::ListTables | Self::Describe(_) => false,
            Self::SetFormat(_) | Self::ShowFormat | Self::Timing(_) | Self::Echo(_) | Self::Help | Self::Quit => false,
        }
    }

    fn with_statement(name: &str, rest: &str) -> Option<Self> {
        if rest.is_empty() {
            return None;
        }
        Some(match name {
            "doris" => Self::Doris(rest.to_owned()),
            "assert" => Self::Assert(rest.to_owned()),
            "assert_empty" => Self::AssertEmpty(rest.to_owned()),
            "job" => {
                let (name, sql) = rest.split_once(char::is_whitespace)?;
                Self::Job { name: name.to_owned(), sql: sql.trim().to_owned() }
            }
            _ => return None,
        })
    }

    fn with_arguments(name: &str, arguments: &[&str]) -> Option<Self> {
        Some(match (name, arguments) {
            ("connect", [url, rest @ ..]) if rest.len() <= 2 => Self::Connect {
                url: (*url).to_owned(),
                user: rest.first().map_or_else(|| "root".to_owned(), |user| (*user).to_owned()),
                password: rest.get(1).map_or_else(String::new, |password| (*password).to_owned()),
            },
            ("jobs", []) => Self::Jobs,
            ("catchup", [name]) => Self::CatchUp { name: (*name).to_owned(), timeout: DEFAULT_CATCH_UP },
            ("catchup", [name, seconds]) => {
                Self::CatchUp { name: (*name).to_owned(), timeout: Duration::from_secs(seconds.parse().ok()?) }
            }
            ("wait", [name]) => Self::Wait((*name).to_owned()),
            ("stop", [name]) => Self::Stop((*name).to_owned()),
            ("d", []) => Self::ListTables,
            ("d", [table]) => Self::Describe((*table).to_owned()),
            ("format", []) => Self::ShowFormat,
            ("format", [format]) => Self::SetFormat(format.parse().ok()?),
            ("timing", []) => Self::Timing(None),
            ("timing", ["on"]) => Self::Timing(Some(true)),
            ("timing", ["off"]) => Self::Timing(Some(false)),
            ("help", []) => Self::Help,
            ("q", []) => Self::Quit,
            _ => return None,
        })
    }
}

/// Words parted by blanks; single quotes keep blanks together, and stand for themselves when doubled. `None` when a
/// quote is left open.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' if quoted && chars.peek() == Some(&'\'') => {
                chars.next();
                word.get_or_insert_default().push('\'');
            }
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::substitute::Missing;

    struct Values;

    impl Lookup for Values {
        fn lookup(&self, name: &str) -> Result<String, Missing> {
            match name {
                "jdbc_url" => Ok("jdbc:mysql://h:9030".to_owned()),
                "env:PW" => Ok("two words' quote".to_owned()),
                _ => Err(Missing::Unknown),
            }
        }
    }

    fn parse(text: &str) -> Result<Command, CommandError> {
        Command::parse(text, &Values)
    }

    fn connect(user: &str, password: &str) -> Command {
        Command::Connect { url: "jdbc:mysql://h:9030".into(), user: user.into(), password: password.into() }
    }

    #[test]
    fn arguments_are_split_before_values_go_in() {
        assert!(parse("connect ${jdbc_url} admin ${env:PW}") == Ok(connect("admin", "two words' quote")));
        assert!(parse("connect ${jdbc_url}") == Ok(connect("root", "")));
        assert!(parse("connect ${jdbc_url} root 'a b''c'") == Ok(connect("root", "a b'c")));
        assert!(parse("connect ${jdbc_url} root ''") == Ok(connect("root", "")));
    }

    #[test]
    fn statements_are_kept_as_they_are() {
        assert!(parse("doris SELECT  '${env:PW}'") == Ok(Command::Doris("SELECT  '${env:PW}'".into())));
        let job = Command::Job { name: "m".into(), sql: "INSERT INTO a\nSELECT 1".into() };
        assert!(parse("job m\n INSERT INTO a\nSELECT 1") == Ok(job));
    }

    #[test]
    fn line_commands_know_their_arguments() {
        let catch_up = |seconds| Command::CatchUp { name: "m".into(), timeout: Duration::from_secs(seconds) };
        assert!(parse("catchup m") == Ok(catch_up(60)));
        assert!(parse("catchup m 5") == Ok(catch_up(5)));
        assert!(parse("timing") == Ok(Command::Timing(None)));
        assert!(parse("format csv") == Ok(Command::SetFormat(Format::Csv)));
        assert!(parse("?") == Ok(Command::Help));
        assert!(parse("q;") == Ok(Command::Quit));
        assert!(parse("echo  it's; ${jdbc_url}") == Ok(Command::Echo("it's; jdbc:mysql://h:9030".into())));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_usage() {
        for text in ["catchup", "catchup m x", "catchup m 1 2", "format yaml", "doris", "job m", "connect", "stop 'a"] {
            let error = parse(text).map(drop).unwrap_err();
            assert!(matches!(error, CommandError::Usage { .. }), "{text}: {error}");
        }
        let error = parse("connect a b c d").map(drop).unwrap_err().to_string();
        assert_eq!(error, r"wrong arguments for `\connect`: usage `\connect URL [USER [PASSWORD]]`");
        assert_eq!(parse("nope x").map(drop).unwrap_err().to_string(), r"unknown command `\nope`: see `\help`");
    }

    #[test]
    fn help_names_every_command() {
        let help = help();
        for name in names() {
            assert!(help.contains(&format!("\\{name}")), "{name}");
        }
    }
}
