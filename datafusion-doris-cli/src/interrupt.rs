//! Ctrl-C and termination, as values that running statements listen for.

use std::future::Future;
use std::io;

use tokio::sync::mpsc;

use crate::error::{Result, ShellError};

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C (SIGINT).
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// 128 plus the signal's number, as shells report it.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Where requests to stop come from: the process's signals, or another sender, for embedding and tests.
#[derive(Debug)]
pub struct Interrupts(mpsc::Receiver<Signal>);

impl Interrupts {
    /// The signals of this process. From here on they no longer end it by themselves.
    ///
    /// A thread of its own listens, with a small runtime of its own: a query that keeps every worker of the main
    /// runtime busy must not keep Ctrl-C from being heard.
    ///
    /// # Errors
    /// [`ShellError::Terminal`] when the handlers cannot be installed.
    pub fn of_process() -> Result<Self> {
        let terminal = |error: io::Error| ShellError::Terminal(error.to_string());
        let (sender, interrupts) = Self::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(terminal)?;
        let mut signals = {
            let _inside = runtime.enter();
            ProcessSignals::install().map_err(terminal)?
        };
        let listen = async move {
            loop {
                let signal = tokio::select! {
                    signal = signals.recv() => signal,
                    () = sender.closed() => return,
                };
                // Full: the shell has several requests to go through, and one more would say nothing new.
                let _ = sender.try_send(signal);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || runtime.block_on(listen)).map_err(terminal)?;
        Ok(interrupts)
    }

    /// Requests that the other end of the channel sends.
    pub fn channel() -> (mpsc::Sender<Signal>, Self) {
        let (sender, receiver) = mpsc::channel(4);
        (sender, Self(receiver))
    }

    /// Waits for the next request. Cancel safe.
    pub async fn recv(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Runs `work` to its end, or drops it when a request arrives.
    ///
    /// # Errors
    /// Those of `work`, and [`ShellError::Interrupted`].
    pub async fn guard<T, E>(&mut self, work: impl Future<Output = std::result::Result<T, E>>) -> Result<T>
    where
        ShellError: From<E>,
    {
        tokio::select! {
            biased;
            signal = self.recv() => Err(ShellError::Interrupted(signal)),
            result = work => Ok(result?),
        }
    }
}

#[cfg(unix)]
struct ProcessSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl ProcessSignals {
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn recv(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            else => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
struct ProcessSignals;

#[cfg(not(unix))]
impl ProcessSignals {
    fn install() -> io::Result<Self> {
        Ok(Self)
    }

    async fn recv(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_dropped_when_a_request_arrives() {
        let (sender, mut interrupts) = Interrupts::channel();
        sender.send(Signal::Interrupt).await.unwrap();
        let error = interrupts.guard(std::future::pending::<Result<()>>()).await.unwrap_err();
        assert!(matches!(error, ShellError::Interrupted(Signal::Interrupt)));
        drop(sender);
        assert_eq!(interrupts.guard(async { Ok::<_, ShellError>(1) }).await.unwrap(), 1);
    }
}
