//! The prompt: reads inputs from a line editor on a thread of its own and runs them.

use std::path::PathBuf;
use std::thread;

use rustyline::error::ReadlineError;
use rustyline::history::{FileHistory, History};
use rustyline::{CompletionType, Config, Editor};
use tokio::sync::mpsc;

use crate::complete::{EditorHelper, Names};
use crate::error::{Result, ShellError};
use crate::interrupt::Signal;
use crate::shell::{Flow, Shell};
use crate::split::Script;

const PROMPT: &str = "doris> ";
/// Environment variable that names the history file; empty = none is kept.
const HISTORY_VARIABLE: &str = "DATAFUSION_DORIS_HISTORY";
const HISTORY_ENTRIES: usize = 1_000;

/// What the user did at the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A complete input: statements, commands, or nothing.
    Text(String),
    /// Ctrl-C: the input so far is thrown away.
    Cleared,
    /// Ctrl-D.
    End,
}

/// Where the inputs come from.
pub(crate) trait Inputs {
    /// Shows the prompt and waits for an input.
    async fn next(&mut self) -> Result<Input>;
}

/// Runs inputs until the user leaves. Errors are reported, and the next input is read.
///
/// # Errors
/// Those that end the shell: the output is closed, or the process is asked to terminate.
pub(crate) async fn run(shell: &mut Shell, inputs: &mut impl Inputs, names: &Names) -> Result<()> {
    loop {
        refresh(shell, names).await;
        // The editor writes to the terminal itself.
        shell.output.flush().await?;
        let input = tokio::select! {
            input = inputs.next() => input?,
            signal = shell.interrupts.recv() => match signal {
                Signal::Terminate => return Err(ShellError::Interrupted(signal)),
                // Sent to the process from outside: the editor takes Ctrl-C itself.
                Signal::Interrupt => return Ok(()),
            },
        };
        let text = match input {
            Input::Text(text) => text,
            Input::Cleared => continue,
            Input::End => return Ok(()),
        };
        match run_input(shell, &text).await {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(()),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => shell.report(&error, None).await,
        }
    }
}

/// Runs all items of one input; the first error skips the rest of it.
async fn run_input(shell: &mut Shell, text: &str) -> Result<Flow> {
    let mut script = Script::new(text);
    while let Some(item) = script.next_item(shell.context.dialect().as_ref()) {
        if shell.run_item(&item?).await? == Flow::Quit {
            return Ok(Flow::Quit);
        }
    }
    Ok(Flow::Continue)
}

/// Tells the editor the tables and columns that exist now. Completion is a comfort: failures leave it as it is.
async fn refresh(shell: &Shell, names: &Names) {
    if let Ok(found) = shell.context.names().await {
        let dialect = shell.context.session().state().config_options().sql_parser.dialect.to_string();
        names.update(found, dialect);
    }
}

/// A line editor on a thread of its own, since it blocks while the user types.
pub(crate) struct EditorThread {
    requests: mpsc::Sender<()>,
    answers: mpsc::Receiver<Result<Input>>,
}

impl EditorThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`ShellError::Terminal`].
    pub(crate) fn start(names: Names) -> Result<Self> {
        let mut editor = LineEditor::new(names)?;
        let (requests, mut wanted) = mpsc::channel(1);
        let (answer, answers) = mpsc::channel(1);
        let edit = move || {
            while wanted.blocking_recv().is_some() && answer.blocking_send(editor.read()).is_ok() {}
        };
        let thread = thread::Builder::new().name("line-editor".to_owned());
        thread.spawn(edit).map_err(|error| ShellError::Terminal(error.to_string()))?;
        Ok(Self { requests, answers })
    }
}

impl Inputs for EditorThread {
    async fn next(&mut self) -> Result<Input> {
        let gone = || ShellError::Terminal("the line editor has ended".to_owned());
        self.requests.send(()).await.map_err(|_| gone())?;
        self.answers.recv().await.ok_or_else(gone)?
    }
}

/// Reads inputs from the terminal, with history.
struct LineEditor {
    config: Config,
    names: Names,
    history: FileHistory,
    history_file: Option<PathBuf>,
}

impl LineEditor {
    fn new(names: Names) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_ENTRIES)
            .map_err(terminal_error)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let mut history = FileHistory::with_config(&config);
        let history_file = history_file();
        if let Some(path) = &history_file {
            // There is none on the first start.
            let _ = history.load(path);
        }
        Ok(Self { config, names, history, history_file })
    }

    fn read(&mut self) -> Result<Input> {
        // An editor takes SIGINT for itself as long as it lives. One per input leaves the signal to the statements
        // that run between two inputs.
        let history = std::mem::take(&mut self.history);
        let mut editor = Editor::with_history(self.config.clone(), history).map_err(terminal_error)?;
        editor.set_helper(Some(EditorHelper(self.names.clone())));
        let line = editor.readline(PROMPT);
        if let Ok(text) = &line
            && !text.trim().is_empty()
            && !holds_secret(text)
        {
            // A history that cannot be written must not stop the work.
            let _ = editor.add_history_entry(text);
            if let Some(path) = &self.history_file {
                let _ = editor.append_history(path);
            }
        }
        self.history = std::mem::take(editor.history_mut());
        match line {
            Ok(text) => Ok(Input::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(Input::Cleared),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(terminal_error(error)),
        }
    }
}

fn terminal_error(error: ReadlineError) -> ShellError {
    ShellError::Terminal(error.to_string())
}

/// Whether an input may hold a password and so stays out of the history.
fn holds_secret(text: &str) -> bool {
    let text = text.to_lowercase();
    ["password", "identified by", "\\connect"].iter().any(|word| text.contains(word))
}

fn history_file() -> Option<PathBuf> {
    match std::env::var_os(HISTORY_VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".datafusion_doris_history")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::context::Context;
    use crate::interrupt::Interrupts;
    use crate::output::{Captured, Output};
    use crate::render::Format;

    struct Typed(VecDeque<Input>);

    impl Inputs for Typed {
        async fn next(&mut self) -> Result<Input> {
            Ok(self.0.pop_front().unwrap_or(Input::End))
        }
    }

    async fn session(inputs: &[Input]) -> (Result<()>, Captured, Names) {
        let (output, captured) = Output::captured();
        let (_signals, interrupts) = Interrupts::channel();
        let mut shell = Shell::new(Context::new(), output.clone(), interrupts, Format::Csv, false);
        let names = Names::default();
        let result = run(&mut shell, &mut Typed(inputs.to_vec().into()), &names).await;
        output.flush().await.unwrap();
        (result, captured, names)
    }

    fn text(text: &str) -> Input {
        Input::Text(text.to_owned())
    }

    #[tokio::test]
    async fn an_error_ends_its_input_and_not_the_session() {
        let inputs = [text("SELECT nope; SELECT 1 AS skipped;"), Input::Cleared, text("SELECT 2 AS two;")];
        let (result, captured, _) = session(&inputs).await;
        assert!(result.is_ok());
        assert_eq!(captured.out(), "two\n2\n");
        assert!(captured.err().starts_with("error: "), "{}", captured.err());
        assert!(captured.err().ends_with("(1 row)\n"), "{}", captured.err());
    }

    #[tokio::test]
    async fn the_session_ends_with_quit() {
        let (result, captured, _) = session(&[text("SELECT 1 AS one; \\q"), text("SELECT 2;")]).await;
        assert!(result.is_ok());
        assert_eq!(captured.out(), "one\n1\n");
    }

    #[tokio::test]
    async fn the_editor_learns_new_tables() {
        let (_, _, names) = session(&[text("CREATE TABLE planets (moons INT);")]).await;
        assert!(format!("{names:?}").contains("planets") && format!("{names:?}").contains("moons"));
    }

    #[test]
    fn inputs_with_passwords_stay_out_of_the_history() {
        assert!(holds_secret("CREATE EXTERNAL TABLE t OPTIONS ('Password' 'x');"));
        assert!(holds_secret("\\connect h root x"));
        assert!(!holds_secret("SELECT 1;"));
    }
}
