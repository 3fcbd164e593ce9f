//! The shell's state, and how one statement or command after the other is run on it.

use std::time::Instant;

use crate::command::{self, Command};
use crate::context::Context;
use crate::error::{Result, ShellError};
use crate::exec;
use crate::interrupt::{Interrupts, Signal};
use crate::jobs::{self, Jobs, Stopping};
use crate::output::Output;
use crate::render::Format;
use crate::split::{Item, ItemKind, Script};
use crate::substitute;

/// What to do after an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the next one.
    Continue,
    /// `\q`: leave.
    Quit,
}

/// A running shell: a DataFusion context, jobs, and where output goes.
pub struct Shell {
    pub(crate) context: Context,
    pub(crate) jobs: Jobs,
    pub(crate) output: Output,
    pub(crate) interrupts: Interrupts,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) timing: bool,
}

impl Shell {
    /// A shell on `context`. `quiet` leaves out everything but results and errors.
    pub fn new(context: Context, output: Output, interrupts: Interrupts, format: Format, quiet: bool) -> Self {
        Self { context, jobs: Jobs::default(), output, interrupts, format, quiet, timing: false }
    }

    /// Runs the items of `text` in order, up to the first error, which is reported with `origin` and its line.
    ///
    /// # Errors
    /// The first error; it has been reported already.
    pub async fn run_script(&mut self, text: &str, origin: Option<&str>) -> Result<Flow> {
        let mut script = Script::new(text);
        while let Some(item) = script.next_item(self.context.dialect().as_ref()) {
            let (line, result) = match item {
                Ok(item) => (item.line, self.run_item(&item).await),
                Err(error) => (error.statement_line, Err(error.into())),
            };
            match result {
                Ok(Flow::Continue) => {}
                Ok(Flow::Quit) => return Ok(Flow::Quit),
                Err(error) => {
                    let place = origin.map(|origin| format!("{origin}, line {line}"));
                    self.report(&error, place.as_deref()).await;
                    return Err(error);
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// Runs one statement or command.
    ///
    /// # Errors
    /// Whatever went wrong; nothing has been reported.
    pub async fn run_item(&mut self, item: &Item<'_>) -> Result<Flow> {
        let started = Instant::now();
        let (flow, takes_time) = match item.kind {
            ItemKind::Sql(sql) => {
                let sql = substitute::in_sql(sql, self.context.dialect().as_ref(), &self.context)?;
                exec::statement(self, &sql).await?;
                (Flow::Continue, true)
            }
            ItemKind::Command(text) => {
                let command = Command::parse(text, &self.context)?;
                let takes_time = command.takes_time();
                (self.run_command(command).await?, takes_time)
            }
        };
        if self.timing && takes_time {
            self.note(&format!("time: {:.3} s", started.elapsed().as_secs_f64())).await?;
        }
        Ok(flow)
    }

    async fn run_command(&mut self, command: Command) -> Result<Flow> {
        match command {
            Command::Doris(sql) => {
                let sql = substitute::in_sql(&sql, &exec::DORIS_DIALECT, &self.context)?;
                exec::doris_statement(self, &sql).await?;
            }
            Command::Connect { url, user, password } => {
                self.interrupts.guard(self.context.connect(&url, &user, &password)).await?;
            }
            Command::Job { name, sql } => {
                self.jobs.check_free(&name)?;
                let sql = substitute::in_sql(&sql, self.context.dialect().as_ref(), &self.context)?;
                let job = self.interrupts.guard(self.context.submit(&name, &sql)).await?;
                self.jobs.add(&name, job);
                self.note(&format!("job `{name}` started")).await?;
            }
            Command::Jobs => exec::print_batch(self, &self.jobs.table()?).await?,
            Command::CatchUp { name, timeout } => {
                self.jobs.catch_up(&name, timeout, &mut self.interrupts).await?;
                self.note(&format!("job `{name}` has caught up")).await?;
            }
            Command::Wait(name) => {
                let rows = self.jobs.wait(&name, &mut self.interrupts).await?;
                self.note(&format!("job `{name}` ended: {}", jobs::rows_written(rows))).await?;
            }
            Command::Stop(name) => {
                let rows = self.jobs.stop(&name, &mut self.interrupts).await?;
                self.note(&format!("job `{name}` stopped: {}", jobs::rows_written(rows))).await?;
            }
            Command::Assert(sql) => {
                let sql = substitute::in_sql(&sql, self.context.dialect().as_ref(), &self.context)?;
                exec::assert_true(self, &sql).await?;
                self.note("assertion holds").await?;
            }
            Command::AssertEmpty(sql) => {
                let sql = substitute::in_sql(&sql, self.context.dialect().as_ref(), &self.context)?;
                exec::assert_empty(self, &sql).await?;
                self.note("assertion holds").await?;
            }
            Command::ListTables => exec::statement(self, exec::LIST_TABLES).await?,
            Command::Describe(table) => exec::describe(self, &table).await?,
            Command::SetFormat(format) => self.format = format,
            Command::ShowFormat => self.print(&format!("{}\n", self.format)).await?,
            Command::Timing(on) => {
                self.timing = on.unwrap_or(!self.timing);
                self.note(&format!("timing is {}", if self.timing { "on" } else { "off" })).await?;
            }
            Command::Echo(text) => self.print(&format!("{text}\n")).await?,
            Command::Help => self.print(&command::help()).await?,
            Command::Quit => return Ok(Flow::Quit),
        }
        Ok(Flow::Continue)
    }

    /// How jobs are stopped, by a signal or without one.
    pub(crate) fn stopping(&self, signal: Option<Signal>) -> Stopping {
        Stopping { signal, timeout: self.context.stop_timeout(), quiet: self.quiet }
    }

    /// Stops the jobs after their epochs and says how they ended. After a `signal` they have `doris.job.stop_timeout` for
    /// it, and are stopped hard then.
    ///
    /// # Errors
    /// The first failure of a job, which has been reported already; [`ShellError::Interrupted`] when a signal came
    /// meanwhile.
    pub async fn end(&mut self, signal: Option<Signal>) -> Result<()> {
        let stopping = self.stopping(signal);
        let ended = self.jobs.end(stopping, &self.output, &mut self.interrupts).await;
        if let Err(error) = &ended {
            self.report(error, None).await;
        }
        ended
    }

    /// A line for people, left out when quiet.
    pub(crate) async fn note(&self, line: &str) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        self.output.note(line).await
    }

    pub(crate) async fn print(&self, text: &str) -> Result<()> {
        self.output.data(text.as_bytes().to_vec()).await
    }

    /// Says what went wrong on standard error. A reader that went away is told nothing.
    pub(crate) async fn report(&self, error: &ShellError, place: Option<&str>) {
        let line = match (error, place) {
            (ShellError::OutputClosed, _) => return,
            (ShellError::Interrupted(_), _) => "cancelled".to_owned(),
            (error, Some(place)) => format!("error in {place}: {error}"),
            (error, None) => format!("error: {error}"),
        };
        // Without readers there is nobody to report to.
        let _ = self.output.note(&line).await;
    }
}
