//! Measurements taken in turns, so that whatever the machine does meanwhile meets both sides.

use std::sync::OnceLock;
use std::time::Instant;

use super::Outcome;
use super::usage::{cpu_of_process, cpu_of_threads, peak_mb, restart_peak};

/// Process id of the server, whose CPU time is told beside that of this process.
static SERVER: OnceLock<u32> = OnceLock::new();

/// Says which process is the server.
pub fn watch(server: u32) {
    // There is one server in a bench.
    let _ = SERVER.set(server);
}

/// CPU seconds of the server so far.
fn cpu_of_server() -> Outcome<Option<f64>> {
    SERVER.get().map_or(Ok(None), cpu_of_process)
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Seconds by the clock.
    pub wall: f64,
    /// CPU seconds of this process.
    pub cpu: f64,
    /// CPU seconds of the server, see [`watch`].
    pub server: f64,
    /// Megabytes by which this process grew at most, above what was resident when the run began.
    pub grown: f64,
}

/// Runs of one thing.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<Sample>);

/// The middle one.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Series {
    /// Takes one more measurement.
    pub async fn time<T>(&mut self, run: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let resident = restart_peak()?;
        let (before, there, started) = (cpu_of_threads()?, cpu_of_server()?, Instant::now());
        let outcome = run.await?;
        let wall = started.elapsed().as_secs_f64();
        let used = |now: Option<f64>, before| now.zip(before).map_or(f64::NAN, |(now, before)| now - before);
        let (cpu, server) = (used(cpu_of_threads()?, before), used(cpu_of_server()?, there));
        let grown = peak_mb()?.zip(resident).map_or(f64::NAN, |(peak, resident)| peak - resident);
        self.0.push(Sample { wall, cpu, server, grown });
        Ok(outcome)
    }

    /// Adds a time that was taken within something else.
    pub fn push(&mut self, wall: f64) {
        self.0.push(Sample { wall, cpu: f64::NAN, server: f64::NAN, grown: f64::NAN });
    }

    /// Forgets the runs so far: they warmed up.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.0.iter().map(of).collect()
    }

    /// Median of the seconds.
    pub fn wall(&self) -> f64 {
        middle(self.values(|sample| sample.wall))
    }

    /// Median of the CPU seconds.
    pub fn cpu(&self) -> f64 {
        middle(self.values(|sample| sample.cpu))
    }

    /// Median of the server's CPU seconds.
    pub fn server(&self) -> f64 {
        middle(self.values(|sample| sample.server))
    }

    /// Median of the cores that client and server kept busy.
    pub fn cores(&self) -> f64 {
        middle(self.values(|sample| (sample.cpu + sample.server) / sample.wall))
    }

    /// CPU seconds of each run of `self` (both sides') and `other` (this process's), over the cores: the least time by the clock
    /// that both together can take here. Median of its ratio to what `whole` took.
    pub fn of_all_cores(&self, other: &Self, whole: &Self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let runs = self.0.iter().zip(&other.0).zip(&whole.0);
        middle(runs.map(|((a, b), whole)| (a.cpu + a.server + b.cpu) / cores / whole.wall).collect())
    }

    /// Most megabytes by which a run grew.
    pub fn grown(&self) -> f64 {
        self.values(|sample| sample.grown).into_iter().fold(f64::NAN, f64::max)
    }

    /// Longest less shortest run, in percent of the median.
    pub fn spread(&self) -> f64 {
        let walls = self.values(|sample| sample.wall);
        let longest = walls.iter().copied().fold(f64::NAN, f64::max);
        let shortest = walls.iter().copied().fold(f64::NAN, f64::min);
        (longest - shortest) / self.wall() * 100.0
    }

    /// Median of the ratios of runs that were made one after the other: `self` over `other`.
    pub fn ratio_to(&self, other: &Self, of: impl Fn(&Sample) -> f64) -> f64 {
        middle(self.0.iter().zip(&other.0).map(|(a, b)| of(a) / of(b)).collect())
    }

    /// Median of what runs of `self` took longer, in seconds, than those of `other` made just before or after.
    pub fn longer_than(&self, other: &Self) -> f64 {
        middle(self.0.iter().zip(&other.0).map(|(a, b)| a.wall - b.wall).collect())
    }

    /// The longer of each pair of runs: what two things that work side by side would take at least.
    pub fn slower_of(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(a, b)| if a.wall > b.wall { *a } else { *b }).collect())
    }
}
