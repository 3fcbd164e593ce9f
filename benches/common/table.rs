//! A Markdown table of figures.

/// Rows under a head; each column as wide as its widest cell, numbers to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|name| (*name).to_owned()).collect(), rows: vec![] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text.
    pub fn render(&self) -> String {
        let cell = |row: &[String], i: usize| row.get(i).cloned().unwrap_or_default();
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let widths: Vec<usize> =
            (0..self.head.len()).map(|i| all().map(|row| cell(row, i).chars().count()).max().unwrap_or(3)).collect();
        let is_number = |i: usize| {
            !self.rows.is_empty()
                && self
                    .rows
                    .iter()
                    .all(|row| cell(row, i).replace(',', "").parse::<f64>().is_ok() || cell(row, i) == "-")
        };
        let line = |row: &[String]| {
            let cells = widths.iter().enumerate().map(|(i, width)| match is_number(i) {
                true => format!("{:>width$}", cell(row, i)),
                false => format!("{:<width$}", cell(row, i)),
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule = widths.iter().enumerate().map(|(i, width)| match is_number(i) {
            true => format!("{}:", "-".repeat(width.saturating_sub(1).max(1))),
            false => "-".repeat(*width),
        });
        let rule = format!("| {} |\n", rule.collect::<Vec<_>>().join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}{rows}", line(&self.head))
    }
}
