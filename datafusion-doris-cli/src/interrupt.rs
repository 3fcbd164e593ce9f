//! Ctrl-C and termination, as values that running statements listen for.

use std::future::Future;

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

/// Where requests to stop come from: the process's signals, or a channel for embedding and tests.
#[derive(Debug)]
pub struct Interrupts(Source);

#[derive(Debug)]
enum Source {
    #[cfg(unix)]
    Process {
        interrupt: tokio::signal::unix::Signal,
        terminate: tokio::signal::unix::Signal,
    },
    #[cfg(not(unix))]
    Process,
    Channel(mpsc::Receiver<Signal>),
}

impl Interrupts {
    /// The signals of this process. From here on they no longer end it by themselves.
    ///
    /// # Errors
    /// [`ShellError::Terminal`] when the handlers cannot be installed.
    pub fn of_process() -> Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).map_err(|error| ShellError::Terminal(error.to_string()));
            let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
            Ok(Self(Source::Process { interrupt, terminate }))
        }
        #[cfg(not(unix))]
        Ok(Self(Source::Process))
    }

    /// Requests that the other end of the channel sends.
    pub fn channel() -> (mpsc::Sender<Signal>, Self) {
        let (sender, receiver) = mpsc::channel(4);
        (sender, Self(Source::Channel(receiver)))
    }

    /// Waits for the next request. Cancel safe.
    pub async fn recv(&mut self) -> Signal {
        match &mut self.0 {
            #[cfg(unix)]
            Source::Process { interrupt, terminate } => tokio::select! {
                Some(()) = terminate.recv() => Signal::Terminate,
                Some(()) = interrupt.recv() => Signal::Interrupt,
                else => std::future::pending().await,
            },
            #[cfg(not(unix))]
            Source::Process => match tokio::signal::ctrl_c().await {
                Ok(()) => Signal::Interrupt,
                Err(_) => std::future::pending().await,
            },
            Source::Channel(receiver) => match receiver.recv().await {
                Some(signal) => signal,
                None => std::future::pending().await,
            },
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
