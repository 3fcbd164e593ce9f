//! `INSERT INTO … WITH LABEL … SELECT … FROM S3(…)`: rows that lie staged in an object store.

use std::fmt::Write as _;

use super::{STATEMENT_PREFIX, quote_ident, quote_table, string_literal};
use crate::options::S3Options;
use crate::types::{DorisType, TableIdent};

/// Rank of a row among those of its key, in the statement only.
const RANK: &str = "__staged_rank";
/// Hidden column that orders rows of one key.
const SEQUENCE: &str = "__DORIS_SEQUENCE_COL__";

/// A column of the target and its values in the staged objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedColumn {
    /// Name, in the table and in the objects.
    pub name: String,
    /// Type in the table.
    pub doris_type: DorisType,
    /// Part of the key.
    pub key: bool,
    /// The objects hold text, whatever the type in the table is.
    pub as_text: bool,
}

impl StagedColumn {
    /// Values as the key compares them. Those that are written need no cast: the assignment casts them, and in strict mode
    /// it tells those that do not fit, which a cast by name makes NULL.
    fn compared(&self) -> String {
        let name = quote_ident(&self.name);
        match &self.doris_type {
            DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String => name,
            doris_type if self.as_text => format!("CAST({name} AS {doris_type})"),
            _ => name,
        }
    }
}

/// The rows of one key, of which the table keeps one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastOfKey {
    /// Staged column with the position of a row in the input.
    pub order: String,
    /// Column whose value decides before the position does: the sequence column of the table.
    pub sequence: Option<String>,
}

/// The statement that takes staged rows into a table, under a label. It is run again under the same label as long as the
/// outcome is not known: the server takes a label once.
#[derive(Debug, Clone)]
pub struct StagedInsert<'a> {
    /// The target.
    pub table: &'a TableIdent,
    /// Label of the load.
    pub label: &'a str,
    /// The columns written, in any order; without the delete sign.
    pub columns: &'a [StagedColumn],
    /// The objects hold a delete sign.
    pub delete_sign: Option<&'a str>,
    /// Set where the table keeps one row per key: objects are read side by side, and only this tells which row of a key
    /// came last.
    pub last_of_key: Option<&'a LastOfKey>,
    /// Column that fills the hidden sequence column, where the table has one of no name.
    pub sequence: Option<&'a str>,
    /// Where the objects lie, and who reads them.
    pub place: &'a S3Options,
    /// Key of the object, or a pattern of keys.
    pub keys: &'a str,
    /// `json` or `parquet`.
    pub format: &'a str,
    /// `compress_type` of the objects; `None` for those that are compressed inside.
    pub compression: Option<&'a str>,
}

impl StagedInsert<'_> {
    /// The statement. It holds the credentials: it is sent, and never shown.
    pub fn to_sql(&self) -> String {
        let mut names: Vec<String> = self.columns.iter().map(|column| quote_ident(&column.name)).collect();
        let mut values = names.clone();
        if let Some(sign) = self.delete_sign {
            names.push(quote_ident(sign));
            values.push(quote_ident(sign));
        }
        let taken = names.join(", ");
        if let Some(column) = self.sequence {
            names.push(quote_ident(SEQUENCE));
            values.push(quote_ident(column));
        }
        let mut sql = format!(
            "{STATEMENT_PREFIX}INSERT INTO {} WITH LABEL {} ({}) SELECT {} FROM ",
            quote_table(self.table),
            quote_ident(self.label),
            names.join(", "),
            values.join(", ")
        );
        match self.last_of_key {
            None => sql.push_str(&self.source()),
            Some(last) => {
                let keys: Vec<String> =
                    self.columns.iter().filter(|column| column.key).map(StagedColumn::compared).collect();
                let sequence = last.sequence.as_ref().map(|name| {
                    let column = self.columns.iter().find(|column| column.name == *name);
                    let value = column.map_or_else(|| quote_ident(name), StagedColumn::compared);
                    format!("{value} DESC NULLS LAST, ")
                });
                let _ = write!(
                    sql,
                    "(SELECT {}, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}CAST({} AS BIGINT) DESC) AS {} FROM {}) \
                     AS `staged` WHERE {} = 1",
                    taken,
                    keys.join(", "),
                    sequence.unwrap_or_default(),
                    quote_ident(&last.order),
                    quote_ident(RANK),
                    self.source(),
                    quote_ident(RANK)
                );
            }
        }
        sql
    }

    fn source(&self) -> String {
        let place = self.place;
        let uri = format!("s3://{}/{}", place.bucket, self.keys);
        let mut properties = vec![
            ("uri", uri.as_str()),
            ("format", self.format),
            ("s3.endpoint", &place.endpoint),
            ("s3.region", &place.region),
            ("s3.access_key", place.access_key.reveal()),
            ("s3.secret_key", place.secret_key.reveal()),
        ];
        if let Some(token) = &place.session_token {
            properties.push(("s3.session_token", token.reveal()));
        }
        if place.path_style {
            properties.push(("use_path_style", "true"));
        }
        if self.format == "json" {
            properties.push(("read_json_by_line", "true"));
        }
        if let Some(compression) = self.compression {
            properties.push(("compress_type", compression));
        }
        let list: Vec<String> =
            properties.iter().map(|(key, value)| format!("'{key}' = {}", string_literal(value))).collect();
        format!("S3({})", list.join(", "))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::options::Secret;

    fn column(name: &str, doris_type: &str, key: bool, as_text: bool) -> StagedColumn {
        StagedColumn { name: name.into(), doris_type: DorisType::parse(doris_type).unwrap(), key, as_text }
    }

    fn place() -> S3Options {
        let (access, secret) = (Secret::new("ak"), Secret::new("k'e\"y\\"));
        S3Options::new("http://s3.example:9000", "eu", "data.lake", "st/dt=1 a+b:c", access, secret).unwrap()
    }

    #[test]
    fn rows_of_a_duplicate_table_are_taken_as_they_are() {
        let columns = [column("id", "INT", true, false), column("we`ird", "ARRAY<INT>", false, false)];
        let place = place();
        let insert = StagedInsert {
            table: &TableIdent::new("d b", "t"),
            label: "p_1:2",
            columns: &columns,
            delete_sign: None,
            last_of_key: None,
            sequence: None,
            place: &place,
            keys: "st/dt=1 a+b:c/p_1:2/x-*.parquet",
            format: "parquet",
            compression: None,
        };
        assert_eq!(
            insert.to_sql(),
            "/* ApplicationName=datafusion-doris */ INSERT INTO `d b`.`t` WITH LABEL `p_1:2` (`id`, `we``ird`) SELECT `id`, \
             `we``ird` FROM S3('uri' = 's3://data.lake/st/dt=1 a+b:c/p_1:2/x-*.parquet', 'format' = 'parquet', \
             's3.endpoint' = 'http://s3.example:9000', 's3.region' = 'eu', 's3.access_key' = 'ak', \
             's3.secret_key' = 'k''e\"y\\\\')"
        );
    }

    #[test]
    fn unique_table_gets_the_last_row_of_a_key_in_the_order_of_the_input() {
        let columns = [
            column("k", "DECIMAL(9, 2)", true, true),
            column("s", "VARCHAR(9)", true, true),
            column("v", "JSON", false, true),
            column("at", "DATETIME", false, true),
        ];
        let place = place().with_path_style(true).with_session_token(Some(Secret::new("tk")));
        let mut last = LastOfKey { order: "__o".into(), sequence: None };
        let insert = |last: &LastOfKey| {
            StagedInsert {
                table: &TableIdent::new("d", "t"),
                label: "l",
                columns: &columns,
                delete_sign: Some("__DORIS_DELETE_SIGN__"),
                last_of_key: Some(last),
                sequence: last.sequence.as_deref(),
                place: &place,
                keys: "p/l/0.json.gz",
                format: "json",
                compression: Some("gz"),
            }
            .to_sql()
        };
        let sql = insert(&last);
        let parts = [
            "INSERT INTO `d`.`t` WITH LABEL `l` (`k`, `s`, `v`, `at`, `__DORIS_DELETE_SIGN__`) SELECT `k`, `s`, \
             `v`, `at`, `__DORIS_DELETE_SIGN__` FROM (SELECT `k`, `s`, `v`, `at`, `__DORIS_DELETE_SIGN__`, \
             ROW_NUMBER() OVER (PARTITION BY CAST(`k` AS DECIMAL(9, 2)), `s` ORDER BY CAST(`__o` AS BIGINT) DESC) AS \
             `__staged_rank` FROM S3(",
            "'s3.session_token' = 'tk', 'use_path_style' = 'true', 'read_json_by_line' = 'true', 'compress_type' = 'gz')) AS \
             `staged` WHERE `__staged_rank` = 1",
        ];
        for part in parts {
            assert!(sql.contains(part), "{sql}\nhas not\n{part}");
        }
        last.sequence = Some("at".into());
        let sql = insert(&last);
        let order = "ORDER BY CAST(`at` AS DATETIME) DESC NULLS LAST, CAST(`__o` AS BIGINT) DESC)";
        assert!(sql.contains(order), "{sql}");
        assert!(sql.contains("`__DORIS_SEQUENCE_COL__`) SELECT") && sql.contains("_SIGN__`, `at` FROM ("), "{sql}");
    }
}
