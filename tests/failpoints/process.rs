//! A child: lines to it, lines from it, and how it ended.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::child::{Life, VARIABLE};

/// The number of SIGABRT.
const ABORTED: i32 = 6;

/// A process of the jobs. Dropping it kills it.
pub struct Process {
    child: Child,
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

/// What a process answers.
pub enum Answer {
    Line(String),
    /// It died where it was told to.
    Died,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts this binary as a child; what it prints as errors is appended to a file.
    pub fn start(life: &Life, errors: &Path) -> Result<Self, String> {
        let errors = fs::File::options().create(true).append(true).open(errors).map_err(|e| e.to_string())?;
        let binary = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(binary);
        command.env(VARIABLE, life.to_text()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { child, pipes: Some((input, BufReader::new(output))) }),
            _ => Err("the child has no input or output".to_string()),
        }
    }

    /// Tells the process something and waits for its answer.
    pub async fn ask(&mut self, line: &str, patience: Duration) -> Result<Answer, String> {
        let (mut input, mut output) = self.pipes.take().ok_or("its pipes are gone")?;
        let asked = format!("{line}\n");
        let answer = tokio::task::spawn_blocking(move || {
            // A process that has just died does not listen: its last words tell.
            let _ = input.write_all(asked.as_bytes()).and_then(|()| input.flush());
            let mut answer = String::new();
            output.read_line(&mut answer).map(|_| (answer, input, output))
        });
        let Ok(answer) = tokio::time::timeout(patience, answer).await else {
            // The thread that reads comes to the end of the pipe.
            let _ = self.child.kill();
            return Err(format!("no answer to '{line}' within {patience:?}"));
        };
        let (answer, input, output) = answer.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        self.pipes = Some((input, output));
        if answer.is_empty() {
            return Err(format!("the process ended at '{line}' by itself: {}", self.wait()?));
        }
        if answer.starts_with("dying at ") {
            let status = self.wait()?;
            return match status.signal() {
                Some(ABORTED) => Ok(Answer::Died),
                _ => Err(format!("{}, but the process ended with {status}", answer.trim())),
            };
        }
        Ok(Answer::Line(answer))
    }

    /// Waits until the process is gone: it has closed its output, or is about to.
    fn wait(&mut self) -> Result<std::process::ExitStatus, String> {
        tokio::task::block_in_place(|| self.child.wait()).map_err(|e| e.to_string())
    }

    /// Waits for the clean end of a process.
    pub fn ended(mut self) -> Result<(), String> {
        let status = self.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the process ended with {status}")) }
    }
}
