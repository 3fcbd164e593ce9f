//! Measurements taken in turns, so that whatever the machine does meanwhile meets both sides.

use std::time::Instant;

use super::Outcome;
use super::usage::cpu_of_threads;

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Seconds by the clock.
    pub wall: f64,
    /// CPU seconds of this process.
    pub cpu: f64,
}

/// Runs of one thing.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<Sample>);

impl Series {
    /// Takes one more measurement.
    pub async fn time<T>(&mut self, run: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let (before, started) = (cpu_of_threads()?, Instant::now());
        let outcome = run.await?;
        let wall = started.elapsed().as_secs_f64();
        let cpu = cpu_of_threads()?.zip(before).map_or(f64::NAN, |(after, before)| after - before);
        self.0.push(Sample { wall, cpu });
        Ok(outcome)
    }

    /// Adds a time that was taken within something else.
    pub fn push(&mut self, wall: f64) {
        self.0.push(Sample { wall, cpu: f64::NAN });
    }

    /// Forgets the runs so far: they warmed up.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn sorted(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median_of(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let values = self.sorted(of);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Median of the seconds.
    pub fn wall(&self) -> f64 {
        self.median_of(|sample| sample.wall)
    }

    /// Median of the CPU seconds.
    pub fn cpu(&self) -> f64 {
        self.median_of(|sample| sample.cpu)
    }

    /// Longest less shortest run, in percent of the median.
    pub fn spread(&self) -> f64 {
        let walls = self.sorted(|sample| sample.wall);
        match (walls.first(), walls.last()) {
            (Some(first), Some(last)) => (last - first) / self.wall() * 100.0,
            _ => f64::NAN,
        }
    }

    /// Median of the ratios of runs that were made one after the other: `self` over `other`.
    pub fn ratio_to(&self, other: &Self, of: impl Fn(&Sample) -> f64) -> f64 {
        let mut ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(a, b)| of(a) / of(b)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
