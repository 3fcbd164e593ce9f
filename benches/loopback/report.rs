//! Figures with their bars.

use serde_json::{Value, json};

use crate::common::table::Table;

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// At least.
    Least(f64),
    /// At most.
    Most(f64),
    /// Told, not judged.
    None,
}

/// One line of the table.
#[derive(Debug)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub bar: Bar,
    /// Beside what it stands: the baseline, the spread.
    pub beside: String,
}

impl Figure {
    fn passes(&self) -> Option<bool> {
        match self.bar {
            Bar::Least(bar) => Some(self.value >= bar),
            Bar::Most(bar) => Some(self.value <= bar),
            Bar::None => None,
        }
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report(Vec<Figure>);

impl Report {
    /// Adds a figure, and tells it at once.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        bar: Bar,
        beside: impl Into<String>,
    ) {
        let figure = Figure { name: name.into(), value, unit, bar, beside: beside.into() };
        eprintln!("{}: {:.3} {} ({})", figure.name, figure.value, figure.unit, figure.beside);
        self.0.push(figure);
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut table = Table::new(&["figure", "value", "unit", "bar", "passes", "beside"]);
        for figure in &self.0 {
            let bar = match figure.bar {
                Bar::Least(bar) => format!("≥ {bar}"),
                Bar::Most(bar) => format!("≤ {bar}"),
                Bar::None => "-".to_owned(),
            };
            let passes = figure.passes().map_or("-", |passes| if passes { "yes" } else { "NO" });
            table.row(vec![
                figure.name.clone(),
                format!("{:.3}", figure.value),
                figure.unit.to_owned(),
                bar,
                passes.to_owned(),
                figure.beside.clone(),
            ]);
        }
        table.render()
    }

    /// The figures by name.
    pub fn json(&self) -> Value {
        let figures = self.0.iter().map(|figure| (figure.name.clone(), json!(figure.value)));
        Value::Object(figures.collect())
    }

    /// Names of the figures that miss their bar.
    pub fn missed(&self) -> Vec<&str> {
        self.0.iter().filter(|figure| figure.passes() == Some(false)).map(|figure| figure.name.as_str()).collect()
    }
}
