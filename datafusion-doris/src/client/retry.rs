//! How long to wait before an idempotent request is repeated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Exponential back-off with jitter: each pause is between half and the whole of a doubling limit.
pub(crate) struct Backoff {
    limit: Duration,
    max: Duration,
    /// Gives numbers in `0.0..1.0`.
    jitter: Box<dyn FnMut() -> f64 + Send>,
}

impl Backoff {
    /// From 100 ms to 5 s, with the process's own randomness.
    pub(crate) fn new() -> Self {
        Self::within(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// From 500 ms to 30 s: for a server that has to get rid of work first.
    pub(crate) fn patient() -> Self {
        Self::within(Duration::from_millis(500), Duration::from_secs(30))
    }

    fn within(first: Duration, max: Duration) -> Self {
        let random = || {
            let bits = RandomState::new().build_hasher().finish() >> 11;
            bits as f64 / (1u64 << 53) as f64
        };
        Self::with(first, max, Box::new(random))
    }

    pub(crate) fn with(first: Duration, max: Duration, jitter: Box<dyn FnMut() -> f64 + Send>) -> Self {
        Self { limit: first, max, jitter }
    }

    /// The next pause.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.limit.mul_f64(0.5 + 0.5 * (self.jitter)().clamp(0.0, 1.0));
        self.limit = (self.limit * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::with(ms(100), ms(350), Box::new(|| 1.0));
        let pauses: Vec<Duration> = (0..4).map(|_| backoff.next_pause()).collect();
        assert_eq!(pauses, [ms(100), ms(200), ms(350), ms(350)]);
    }

    #[test]
    fn jitter_takes_off_at_most_half() {
        let mut backoff = Backoff::with(Duration::from_millis(100), Duration::from_secs(1), Box::new(|| 0.0));
        assert_eq!(backoff.next_pause(), Duration::from_millis(50));
        let mut real = Backoff::new();
        let first = real.next_pause();
        assert!(first >= Duration::from_millis(50) && first <= Duration::from_millis(100), "{first:?}");
    }
}
