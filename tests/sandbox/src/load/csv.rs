//! Separated text: cuts a byte stream into records and records into fields.

use std::io::{self, Read};

use super::header::CsvOptions;

/// Bytes asked of the input at once.
const READ_SIZE: usize = 128 * 1024;
/// Largest record: beyond it the input is not what its headers say.
const MAX_RECORD: usize = 512 * 1024 * 1024;

/// Cuts an input into records at a delimiter, holding one record and one read ahead.
pub struct Records<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
}

impl<R: Read> Records<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), start: 0, ended: false }
    }

    /// Makes more bytes available; false at the end of the input.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.len() >= MAX_RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is larger than 512 MiB"));
        }
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_SIZE, 0);
        let n = loop {
            match self.input.read(&mut self.buffer[filled..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(filled + *n.as_ref().unwrap_or(&0));
        self.ended = n? == 0;
        Ok(!self.ended)
    }

    /// The next record without its delimiter, as offsets into [`Self::bytes`].
    pub fn next(&mut self, delimiter: &[u8]) -> io::Result<Option<(usize, usize)>> {
        let mut from = 0;
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = find(&rest[from..], delimiter) {
                let (begin, end) = (self.start, self.start + from + at);
                self.start = end + delimiter.len();
                return Ok(Some((begin, end)));
            }
            from = rest.len().saturating_sub(delimiter.len() - 1);
            if !self.fill()? {
                return Ok(self.take_rest());
            }
        }
    }

    /// As [`Self::next`], but delimiters inside enclosed fields do not count.
    pub fn next_enclosed(&mut self, options: &CsvOptions, enclose: u8) -> io::Result<Option<(usize, usize)>> {
        let mut scan = EnclosedScan { at: 0, inside: false, field_start: true };
        loop {
            if let Some(len) = scan.advance(&self.buffer[self.start..], options, enclose, self.ended) {
                let (begin, end) = (self.start, self.start + len);
                self.start = end + options.delimiter.len();
                return Ok(Some((begin, end)));
            }
            let more = self.fill()?;
            // One more pass over what was held back for lookahead.
            if !more {
                if let Some(len) = scan.advance(&self.buffer[self.start..], options, enclose, true) {
                    let (begin, end) = (self.start, self.start + len);
                    self.start = end + options.delimiter.len();
                    return Ok(Some((begin, end)));
                }
                return Ok(self.take_rest());
            }
        }
    }

    fn take_rest(&mut self) -> Option<(usize, usize)> {
        if self.start == self.buffer.len() {
            return None;
        }
        let range = (self.start, self.buffer.len());
        self.start = self.buffer.len();
        Some(range)
    }

    /// Bytes of a record that was just returned.
    pub fn bytes(&self, (begin, end): (usize, usize)) -> &[u8] {
        &self.buffer[begin..end]
    }
}

/// Progress of the search for the end of a record with enclosed fields.
struct EnclosedScan {
    at: usize,
    inside: bool,
    field_start: bool,
}

impl EnclosedScan {
    fn advance(&mut self, bytes: &[u8], options: &CsvOptions, enclose: u8, complete: bool) -> Option<usize> {
        // What follows a closing byte decides whether it closes, so keep enough bytes for either separator.
        let lookahead = options.separator.len().max(options.delimiter.len()) + 2;
        let limit = if complete { bytes.len() } else { bytes.len().saturating_sub(lookahead) };
        match (options.separator.as_slice(), options.delimiter.as_slice()) {
            ([separator], [delimiter]) if ![separator, delimiter].contains(&&enclose) && separator != delimiter => {
                self.advance_by_bytes(bytes, limit, options, enclose, [*separator, *delimiter])
            }
            _ => self.advance_by_texts(bytes, limit, options, enclose),
        }
    }

    /// Goes from one byte that matters to the next: a field begins where a separator or nothing precedes.
    fn advance_by_bytes(
        &mut self,
        bytes: &[u8],
        limit: usize,
        options: &CsvOptions,
        enclose: u8,
        [separator, delimiter]: [u8; 2],
    ) -> Option<usize> {
        while self.at < limit {
            let ahead = &bytes[self.at..limit];
            let found = match (self.inside, options.escape) {
                (true, Some(escape)) => memchr::memchr2(enclose, escape, ahead),
                (true, None) => memchr::memchr(enclose, ahead),
                (false, _) => memchr::memchr2(enclose, delimiter, ahead),
            };
            let Some(skipped) = found else {
                self.at = limit;
                break;
            };
            self.at += skipped;
            let (byte, behind) = (bytes[self.at], &bytes[self.at + 1..]);
            if self.inside {
                if Some(byte) == options.escape && !behind.is_empty() {
                    self.at += 2;
                    continue;
                }
                self.inside = byte != enclose || !closes(behind, options);
            } else if byte == delimiter {
                return Some(self.at);
            } else {
                self.inside = self.at == 0 || bytes[self.at - 1] == separator;
            }
            self.at += 1;
        }
        None
    }

    /// The same by every byte, for separators of any length.
    fn advance_by_texts(&mut self, bytes: &[u8], limit: usize, options: &CsvOptions, enclose: u8) -> Option<usize> {
        while self.at < limit {
            let rest = &bytes[self.at..];
            if self.inside {
                if Some(rest[0]) == options.escape && rest.len() > 1 {
                    self.at += 2;
                    continue;
                }
                if rest[0] == enclose && closes(&rest[1..], options) {
                    self.inside = false;
                }
                self.at += 1;
            } else if rest.starts_with(&options.delimiter) {
                return Some(self.at);
            } else if rest.starts_with(&options.separator) {
                self.at += options.separator.len();
                self.field_start = true;
            } else {
                self.inside = self.field_start && rest[0] == enclose;
                self.field_start = false;
                self.at += 1;
            }
        }
        None
    }
}

/// As `starts_with`, without a call where the text is one byte.
fn begins(rest: &[u8], text: &[u8]) -> bool {
    match text {
        [byte] => rest.first() == Some(byte),
        _ => rest.starts_with(text),
    }
}

/// A closing byte is one that a separator, a delimiter or the end follows.
fn closes(rest: &[u8], options: &CsvOptions) -> bool {
    // A carriage return before a line feed belongs to it.
    let rest =
        rest.strip_prefix(b"\r").filter(|_| ends_at_line_feed(options)).filter(|r| !r.is_empty()).unwrap_or(rest);
    rest.is_empty() || begins(rest, &options.separator) || begins(rest, &options.delimiter)
}

/// Whether lines end with a line feed, which a carriage return may precede.
fn ends_at_line_feed(options: &CsvOptions) -> bool {
    options.delimiter == b"\n"
}

/// A record without the carriage return before its line feed.
pub(super) fn without_return<'a>(record: &'a [u8], options: &CsvOptions) -> &'a [u8] {
    record.strip_suffix(b"\r").filter(|_| ends_at_line_feed(options)).unwrap_or(record)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    match needle {
        [byte] => memchr::memchr(*byte, haystack),
        _ => memchr::memmem::find(haystack, needle),
    }
}

/// Fields of one record; buffers are reused from record to record.
#[derive(Default)]
pub struct Fields {
    /// Unescaped text of all fields, one after the other.
    text: Vec<u8>,
    ends: Vec<usize>,
    nulls: Vec<bool>,
}

/// How a CSV file writes NULL.
const NULL: &[u8] = b"\\N";

impl Fields {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of field `i`.
    pub fn get(&self, i: usize) -> &[u8] {
        let begin = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.text[begin..self.ends[i]]
    }

    /// Whether field `i` is NULL: `\N` as it stands in the record, without its quotes and before escapes are decoded, so
    /// that an enclosed and escaped `\\N` is the text `\N`.
    pub fn is_null(&self, i: usize) -> bool {
        self.nulls[i]
    }

    /// Cuts `record` into fields.
    pub fn split(&mut self, record: &[u8], options: &CsvOptions) {
        self.text.clear();
        self.ends.clear();
        self.nulls.clear();
        match options.enclose {
            None => self.split_plain(record, options),
            Some(enclose) => self.split_enclosed(record, options, enclose),
        }
    }

    fn push(&mut self, field: &[u8], options: &CsvOptions) {
        let quoted = options.trim_double_quotes && field.len() >= 2 && field[0] == b'"' && field.ends_with(b"\"");
        let field = if quoted { &field[1..field.len() - 1] } else { field };
        self.text.extend_from_slice(field);
        self.end_field(field);
    }

    /// Ends the field whose text was just added; `raw` is how the record has it.
    fn end_field(&mut self, raw: &[u8]) {
        self.ends.push(self.text.len());
        self.nulls.push(raw == NULL);
    }

    fn split_plain(&mut self, record: &[u8], options: &CsvOptions) {
        let mut rest = record;
        while let Some(at) = find(rest, &options.separator) {
            self.push(&rest[..at], options);
            rest = &rest[at + options.separator.len()..];
        }
        self.push(rest, options);
    }

    fn split_enclosed(&mut self, record: &[u8], options: &CsvOptions, enclose: u8) {
        // Doris keeps a double quote as data unless trim_double_quotes says otherwise.
        let keep = enclose == b'"' && !options.trim_double_quotes;
        let mut rest = record;
        loop {
            let end = field_end(rest, options, enclose);
            let field = &rest[..end];
            let enclosed = field.len() >= 2 && field[0] == enclose && field.ends_with(&[enclose]);
            let raw = if enclosed && !keep { &field[1..end - 1] } else { field };
            if enclosed && !keep {
                self.push_unescaped(raw, options, enclose);
            } else {
                self.text.extend_from_slice(raw);
            }
            self.end_field(raw);
            if end == rest.len() {
                return;
            }
            rest = &rest[end + options.separator.len()..];
        }
    }

    fn push_unescaped(&mut self, inner: &[u8], options: &CsvOptions, enclose: u8) {
        let mut bytes = inner.iter().copied().peekable();
        while let Some(b) = bytes.next() {
            let next = bytes.peek().copied();
            let escaped = Some(b) == options.escape && next.is_some_and(|n| n == enclose || Some(n) == options.escape);
            let doubled = b == enclose && next == Some(enclose);
            if escaped || doubled {
                self.text.extend(bytes.next());
            } else {
                self.text.push(b);
            }
        }
    }
}

/// Length of the field at the start of `rest`.
fn field_end(rest: &[u8], options: &CsvOptions, enclose: u8) -> usize {
    let mut at = 0;
    let mut inside = rest.first() == Some(&enclose);
    if inside {
        at = 1;
    }
    while at < rest.len() {
        if inside {
            if Some(rest[at]) == options.escape && at + 1 < rest.len() {
                at += 2;
                continue;
            }
            if rest[at] == enclose && closes(&rest[at + 1..], options) {
                inside = false;
            }
        } else if rest[at..].starts_with(&options.separator) {
            return at;
        }
        at += 1;
    }
    rest.len()
}

#[cfg(test)]
mod tests;
