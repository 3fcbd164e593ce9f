//! `format: csv`: lines of a body into rows.

use std::io::Read;

use super::csv::{Fields, Records, without_return};
use super::header::CsvOptions;
use super::intake::Intake;
use super::reply::Failure;
use super::worker::input_failure;

/// Byte order mark that some editors put before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads every line behind the first `skip`.
pub(super) fn read(
    input: impl Read,
    mut skip: usize,
    options: &CsvOptions,
    intake: &mut Intake<'_>,
) -> Result<(), Failure> {
    let mut records = Records::new(input);
    let mut fields = Fields::default();
    let mut first = true;
    let mut wanted = (!intake.mapping.open_ended).then_some(intake.mapping.sources.len());
    loop {
        let range = match options.enclose {
            None => records.next(&options.delimiter),
            Some(enclose) => records.next_enclosed(options, enclose),
        };
        let Some(range) = range.map_err(|e| input_failure(&e))? else { return Ok(()) };
        let mut record = without_return(records.bytes(range), options);
        if std::mem::take(&mut first) {
            record = record.strip_prefix(BOM).unwrap_or(record);
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        // An empty line is no row.
        if !record.is_empty() {
            row(record, options, &mut fields, &mut wanted, intake)?;
        }
    }
}

/// Takes a line; without a number of columns to go by, that of the first line counts.
fn row(
    record: &[u8],
    options: &CsvOptions,
    fields: &mut Fields,
    wanted: &mut Option<usize>,
    intake: &mut Intake<'_>,
) -> Result<(), Failure> {
    let Ok(text) = std::str::from_utf8(record) else {
        return intake.reject("Unable to display", "Only support csv data in utf8 codec");
    };
    fields.split(record, options);
    let wanted = *wanted.get_or_insert(fields.len());
    if let Some(missing) = intake.mapping.sources.get(wanted) {
        let text = format!("TStatus: errCode = 2, detailMessage = Unknown column '{}' in 'table list'", missing.name);
        return Err(Failure::new("ANALYSIS_ERROR", text));
    }
    if fields.len() != wanted {
        let relation = if fields.len() < wanted { "less" } else { "more" };
        let reason = format!(
            "actual column number in csv file is  {relation} than  schema column number.actual number: {}, schema column number: {wanted}; ",
            fields.len()
        );
        return intake.reject(text, reason);
    }
    intake.row(text, &[], |i| {
        let field = fields.get(i);
        let null = fields.is_null(i) || (options.empty_field_as_null && field.is_empty());
        Ok((!null).then(|| String::from_utf8_lossy(field)))
    })
}
