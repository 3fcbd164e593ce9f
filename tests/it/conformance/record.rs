//! The case files: their format and how they are read.
//!
//! A file is a list of records separated by blank lines; a line that starts with `#` is a comment. Directives stand for
//! the records after them: `section A.3 Title`; before the first record also `profiles 2.1 4.0` (a sandbox each, the
//! newest alone by default) and `setting NAME VALUE`.
//!
//! A record may begin with `only 2.1 3.1` (profiles), `on NAME` (a further connection), `gap REASON` (the sandbox is
//! known to differ: the record may fail, and is counted apart; when it does not fail, the report says so). Then comes its verb:
//!
//! | verb | input lines | lines after `----` |
//! | --- | --- | --- |
//! | `setup` | SQL that must succeed; not counted as a case | |
//! | `ok` | SQL that must succeed | `affected N`, `warnings N`, `info GLOB` |
//! | `query [sort] [names] [types] [among]` | SQL | rows, cells joined by ` \| `; `among`: each is one of the rows |
//! | `error CODE TEXT` | SQL that must fail with a text that contains TEXT | |
//! | `let NAME` | SQL; its first cell becomes `$NAME`; not counted | |
//! | `login USER PASSWORD [DATABASE]` | | `ok` or `error CODE TEXT` |
//! | `flight [sort] [schema]` | SQL over Flight SQL | rows; `schema`: the first line is the Arrow schema |
//! | `flight-error STATUS TEXT` | SQL over Flight SQL that must fail | |
//! | `flight-call NAME [ARGUMENTS]` | SQL, for calls that have one | rows, or `error STATUS TEXT` |
//! | `http METHOD fe\|be\|URL PATH` | `> header: value`, `< body line` | see below |
//! | `load fe\|be DATABASE.TABLE` | the same; a Stream Load with the usual headers | see below |
//! | `object BUCKET/KEY [ENCODING]` | lines of an object for S3; not counted | |
//! | `arm PATH` | JSON for the sandbox's admin endpoint, `/faults` above all; not counted | |
//! | `advance MILLISECONDS` | moves the clock; not counted | |
//!
//! Answers of HTTP: `status N`, `header NAME GLOB`, `body GLOB`, `keys A B …` (top-level keys in their order),
//! `PATH = GLOB`, `PATH absent` and `NAME <- PATH` (keeps a value) over the JSON body, with paths such as
//! `data.rows.0.#` (`#`: the length). `*` in a GLOB stands for any text. `\n` in an expected cell is a line break.

use std::path::{Path, PathBuf};

use doris_sandbox::Profile;

/// A case file.
pub struct File {
    pub path: PathBuf,
    pub profiles: Vec<Profile>,
    pub settings: Vec<(String, String)>,
    pub records: Vec<Record>,
}

/// One statement or request with its expected outcome.
#[derive(Clone)]
pub struct Record {
    pub line: usize,
    pub section: String,
    pub only: Vec<Profile>,
    pub connection: String,
    pub gap: Option<String>,
    pub verb: String,
    pub arguments: String,
    pub input: Vec<String>,
    pub expected: Vec<String>,
}

impl Record {
    /// Whether it asserts something of the reference, as opposed to preparing for that.
    pub fn counts(&self) -> bool {
        !matches!(self.verb.as_str(), "setup" | "let" | "object" | "arm" | "advance")
    }

    pub fn sql(&self) -> String {
        self.input.join("\n")
    }

    /// Whether the verb has the option `name`.
    pub fn has(&self, name: &str) -> bool {
        self.arguments.split_whitespace().any(|word| word == name)
    }
}

/// Reads every case file below `directory`, by name.
pub fn read_all(directory: &Path) -> Vec<File> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("cases")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> File {
    let text = std::fs::read_to_string(path).expect("readable");
    let mut file = File { path: path.to_owned(), profiles: vec![], settings: vec![], records: vec![] };
    let mut section = String::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let place = || format!("{}:{}", path.display(), at + 1);
        let line = lines[at];
        if line.trim().is_empty() || line.starts_with('#') {
            at += 1;
        } else if let Some(title) = line.strip_prefix("section ") {
            section = title.split_whitespace().next().unwrap_or_else(|| panic!("{}: no section", place())).to_owned();
            at += 1;
        } else if let Some(names) = line.strip_prefix("profiles ") {
            file.profiles = profiles(names, &place());
            at += 1;
        } else if let Some(setting) = line.strip_prefix("setting ") {
            let (name, value) = setting.split_once(' ').unwrap_or_else(|| panic!("{}: no value", place()));
            file.settings.push((name.to_owned(), value.to_owned()));
            at += 1;
        } else {
            let end = lines[at..].iter().position(|l| l.trim().is_empty()).map_or(lines.len(), |n| at + n);
            let record = record(path, &section, at, &lines[at..end]);
            assert!(!section.is_empty() || !record.counts(), "{}: a case before the first section", place());
            file.records.push(record);
            at = end;
        }
    }
    if file.profiles.is_empty() {
        file.profiles.push(Profile::default());
    }
    file
}

fn record(path: &Path, section: &str, at: usize, lines: &[&str]) -> Record {
    let mut record = Record {
        line: at + 1,
        section: section.to_owned(),
        only: vec![],
        connection: "main".to_owned(),
        gap: None,
        verb: String::new(),
        arguments: String::new(),
        input: vec![],
        expected: vec![],
    };
    let mut rest = lines.iter();
    for line in rest.by_ref() {
        let (word, arguments) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "#" => {}
            "only" => record.only = profiles(arguments, &format!("{}:{}", path.display(), at + 1)),
            "on" => record.connection = arguments.to_owned(),
            "gap" => record.gap = Some(arguments.to_owned()),
            verb => {
                record.verb = verb.to_owned();
                record.arguments = arguments.to_owned();
                break;
            }
        }
    }
    let mut behind = false;
    for line in rest {
        if *line == "----" {
            behind = true;
        } else if behind {
            record.expected.push((*line).to_owned());
        } else {
            record.input.push((*line).to_owned());
        }
    }
    record
}

fn profiles(names: &str, place: &str) -> Vec<Profile> {
    names.split_whitespace().map(|name| name.parse().unwrap_or_else(|e| panic!("{place}: {e}"))).collect()
}
