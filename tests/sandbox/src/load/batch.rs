//! Rows of a body on their way into a batch of source columns, with their texts for the error log.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, ListBuilder, StringBuilder};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of text after which a batch is full whatever its rows.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    /// Bad data, with the reason.
    Filtered(String),
    /// Left out by `where`.
    Unselected,
}

/// Text of each row for the error log.
#[derive(Debug)]
pub(super) enum Lines {
    /// As the body has it.
    Texts { text: String, ends: Vec<usize> },
    /// Rows of a binary format, numbered from here.
    Numbered { first: u64, what: &'static str },
}

impl Lines {
    fn texts() -> Self {
        Self::Texts { text: String::new(), ends: Vec::new() }
    }

    pub fn get(&self, row: usize) -> Cow<'_, str> {
        match self {
            Self::Texts { text, ends } => {
                let begin = if row == 0 { 0 } else { ends[row - 1] };
                Cow::Borrowed(&text[begin..ends[row]])
            }
            Self::Numbered { first, what } => Cow::Owned(format!("row {} of {what}", first + row as u64)),
        }
    }
}

/// Rows of the columns of a body.
pub(super) struct SourceRows {
    /// One array per source column.
    pub arrays: Vec<ArrayRef>,
    /// Per row, the positions of the columns it does not bring (flexible partial update).
    pub skips: Option<ArrayRef>,
    pub fates: Vec<Fate>,
    pub lines: Lines,
}

/// Collects rows of texts.
pub(super) struct SourceBatch {
    builders: Vec<StringBuilder>,
    skips: Option<ListBuilder<Int32Builder>>,
    fates: Vec<Fate>,
    lines: Lines,
    bytes: usize,
}

impl SourceBatch {
    pub fn new(columns: usize, flexible: bool) -> Self {
        Self {
            builders: (0..columns).map(|_| StringBuilder::new()).collect(),
            skips: flexible.then(|| ListBuilder::new(Int32Builder::new())),
            fates: Vec::new(),
            lines: Lines::texts(),
            bytes: 0,
        }
    }

    fn line(&mut self, line: &str) {
        if let Lines::Texts { text, ends } = &mut self.lines {
            text.push_str(line);
            ends.push(text.len());
        }
        self.bytes += line.len();
    }

    /// Adds a row; `value` gives the text of each column (`None` for NULL) or the reason why the row is bad.
    pub fn push<'v>(
        &mut self,
        line: &str,
        skipped: &[i32],
        mut value: impl FnMut(usize) -> Result<Option<Cow<'v, str>>, String>,
    ) {
        let mut fate = Fate::Kept;
        for (i, builder) in self.builders.iter_mut().enumerate() {
            // A bad row still needs a value in every column to keep them level.
            if fate != Fate::Kept {
                builder.append_null();
                continue;
            }
            match value(i) {
                Ok(text) => {
                    self.bytes += text.as_ref().map_or(0, |t| t.len());
                    builder.append_option(text);
                }
                Err(reason) => {
                    builder.append_null();
                    fate = Fate::Filtered(reason);
                }
            }
        }
        if let Some(skips) = &mut self.skips {
            skips.values().append_slice(skipped);
            skips.append(true);
        }
        self.fates.push(fate);
        self.line(line);
    }

    /// Adds a row that cannot be read.
    pub fn reject(&mut self, line: &str, reason: String) {
        self.builders.iter_mut().for_each(StringBuilder::append_null);
        if let Some(skips) = &mut self.skips {
            skips.append(true);
        }
        self.fates.push(Fate::Filtered(reason));
        self.line(line);
    }

    pub fn is_full(&self) -> bool {
        self.fates.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows so far; the batch is empty afterwards.
    pub fn take(&mut self) -> SourceRows {
        self.bytes = 0;
        SourceRows {
            arrays: self.builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect(),
            skips: self.skips.as_mut().map(|s| Arc::new(s.finish()) as ArrayRef),
            fates: std::mem::take(&mut self.fates),
            lines: std::mem::replace(&mut self.lines, Lines::texts()),
        }
    }
}
