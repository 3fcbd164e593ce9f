//! Splits a script into statements and backslash commands.
//!
//! A statement runs to its `;`, found by the SQL parser's own tokenizer: a `;` in a string, a quoted name or a comment
//! ends nothing, and the last statement of a script needs none. A command starts with a backslash where a statement
//! could start. It takes one line, or, when it carries a statement (`\doris`, `\job` …), runs to its `;`.

use datafusion::sql::sqlparser::dialect::{Dialect, MySqlDialect};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::fmt;

use crate::command::{self, Carries};
use crate::lex::{self, Stopped};

/// One thing to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<'a> {
    /// What it is, with its text.
    pub kind: ItemKind<'a>,
    /// Line it starts on, from 1.
    pub line: usize,
    /// Whether it is complete: false for a last statement without its `;`.
    pub terminated: bool,
}

/// A statement or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind<'a> {
    /// SQL for DataFusion, without its `;`.
    Sql(&'a str),
    /// A command, without its backslash and its `;`.
    Command(&'a str),
}

/// A statement that a command interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitError {
    /// Line the statement starts on, from 1.
    pub statement_line: usize,
    /// Line of the command, from 1.
    pub command_line: usize,
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the statement of line {} is not ended by `;` before the command of line {}",
            self.statement_line, self.command_line
        )
    }
}

impl std::error::Error for SplitError {}

/// A text and how far it has been split. Items are found one by one, since a statement can change the SQL dialect
/// that the next one is written in.
#[derive(Debug)]
pub struct Script<'a> {
    text: &'a str,
    offset: usize,
}

/// Where a statement ends. `empty` when nothing but blanks and comments stands before it.
enum End {
    /// At the `;` of this offset.
    Semicolon { offset: usize, empty: bool },
    /// At the end of the text.
    Text { empty: bool },
    /// Before the command at this offset.
    Command { offset: usize, empty: bool },
}

impl<'a> Script<'a> {
    /// A script that has not been started.
    pub fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    /// The next item, or `None` at the end. `dialect` is the one of the session.
    ///
    /// # Errors
    /// [`SplitError`] when a command starts inside an unfinished statement; splitting goes on at the command.
    pub fn next_item(&mut self, dialect: &dyn Dialect) -> Option<Result<Item<'a>, SplitError>> {
        loop {
            let rest = self.text[self.offset..].trim_start();
            self.offset = self.text.len() - rest.len();
            if rest.is_empty() {
                return None;
            }
            if rest.starts_with(';') {
                self.offset += 1;
                continue;
            }
            let start = self.offset;
            if rest.starts_with('\\') {
                return Some(self.command(start, dialect));
            }
            match self.find_end(start, dialect) {
                // Only comments: nothing to run.
                End::Text { empty: true } => self.offset = self.text.len(),
                End::Semicolon { offset, empty: true } => self.offset = offset + 1,
                End::Command { offset, empty: true } => self.offset = offset,
                end => return Some(self.item(start, start, end, ItemKind::Sql)),
            }
        }
    }

    fn command(&mut self, start: usize, dialect: &dyn Dialect) -> Result<Item<'a>, SplitError> {
        let body = start + 1;
        let line_end = self.text[body..].find('\n').map_or(self.text.len(), |i| body + i);
        let name_end = self.text[body..line_end].find(char::is_whitespace).map_or(line_end, |i| body + i);
        let end = match command::carries(&self.text[body..name_end]) {
            Carries::Line => {
                self.offset = line_end;
                let text = self.text[body..line_end].trim_end();
                return Ok(Item { kind: ItemKind::Command(text), line: self.line_of(start), terminated: true });
            }
            Carries::Sql => self.find_end(name_end, dialect),
            Carries::DorisSql => self.find_end(name_end, &MySqlDialect {}),
        };
        self.item(start, body, end, ItemKind::Command)
    }

    /// Takes the text from `body` to `end`, for an item that started at `start`.
    fn item(
        &mut self,
        start: usize,
        body: usize,
        end: End,
        kind: fn(&'a str) -> ItemKind<'a>,
    ) -> Result<Item<'a>, SplitError> {
        let (until, terminated) = match end {
            End::Semicolon { offset, .. } => {
                self.offset = offset + 1;
                (offset, true)
            }
            End::Text { .. } => {
                self.offset = self.text.len();
                (self.text.len(), false)
            }
            End::Command { offset, .. } => {
                self.offset = offset;
                return Err(SplitError { statement_line: self.line_of(start), command_line: self.line_of(offset) });
            }
        };
        Ok(Item { kind: kind(self.text[body..until].trim_end()), line: self.line_of(start), terminated })
    }

    /// Finds the end of the statement at `start`. Only the text up to the next line that starts with a backslash is
    /// read; more when a string or comment is still open there, since such a line may stand inside of it.
    fn find_end(&self, start: usize, dialect: &dyn Dialect) -> End {
        let mut segment_end = start;
        loop {
            let command = self.next_command_line(segment_end);
            segment_end = command.unwrap_or(self.text.len());
            let lexed = lex::lex(&self.text[start..segment_end], dialect);
            let blank = |lexeme: &lex::Lexeme| matches!(lexeme.token, Token::Whitespace(_));
            if let Some(semicolon) = lexed.lexemes.iter().position(|lexeme| lexeme.token == Token::SemiColon) {
                let empty = lexed.lexemes[..semicolon].iter().all(blank);
                return End::Semicolon { offset: start + lexed.lexemes[semicolon].range.start, empty };
            }
            if lexed.stopped == Some(Stopped::Unfinished) && command.is_some() {
                continue;
            }
            let empty = lexed.stopped.is_none() && lexed.lexemes.iter().all(blank);
            return match command {
                Some(offset) => End::Command { offset, empty },
                None => End::Text { empty },
            };
        }
    }

    /// The offset of the next backslash that is the first character of a line after the line of `from`.
    fn next_command_line(&self, from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(newline) = self.text[at..].find('\n') {
            at += newline + 1;
            let line = self.text[at..].trim_start_matches([' ', '\t']);
            if line.starts_with('\\') {
                return Some(self.text.len() - line.len());
            }
        }
        None
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }
}

/// Whether a text typed so far can be run: everything in it is ended by `;`, or is a complete command.
///
/// Text that no continuation can make valid counts as complete too, so that the parser can say what is wrong.
pub fn is_complete(text: &str, dialect: &dyn Dialect) -> bool {
    let mut script = Script::new(text);
    while let Some(item) = script.next_item(dialect) {
        match item {
            Err(_) => return true,
            Ok(item) if !item.terminated => {
                let invalid = lex::lex(text, dialect).stopped == Some(Stopped::Invalid);
                return invalid && text.trim_end().ends_with(';');
            }
            Ok(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests;
