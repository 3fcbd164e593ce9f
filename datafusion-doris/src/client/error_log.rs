//! The rows that a load refused, as a BE keeps them.

use std::time::Duration;

use reqwest::Url;

use super::DorisClient;
use super::http::authority;

/// Bytes read and shown of a log.
const LIMIT: usize = 4096;
/// Lines shown of a log.
const SHOWN_LINES: usize = 10;
/// Time for it: the reason is of use to a reader, the load is over without it.
const PATIENCE: Duration = Duration::from_secs(5);

impl DorisClient {
    /// The first refused rows and their reasons, a line each. Asked of the BE at `host` that took the load and of nobody
    /// else, without credentials; `None` when it does not tell.
    pub(super) async fn refused_rows(&self, error_url: &str, host: &str) -> Option<String> {
        let url = Url::parse(error_url).ok().filter(|url| authority(url) == host)?;
        let text = match tokio::time::timeout(PATIENCE, self.inner.http.get_start(url, LIMIT)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                tracing::debug!(host, %error, "the log of refused rows was not read");
                return None;
            }
            Err(_) => return None,
        };
        Some(first_lines(&text)).filter(|lines| !lines.is_empty())
    }

    /// The same of a statement, which ran on any BE: asked of one that the FEs list as alive, or that the options name.
    pub(crate) async fn refused_rows_of_statement(&self, error_url: &str) -> Option<String> {
        let host = authority(&Url::parse(error_url).ok()?);
        let is_named =
            self.inner.backends.in_order().iter().any(|node| node.rsplit("//").next() == Some(host.as_str()));
        if !is_named {
            match tokio::time::timeout(PATIENCE, self.alive_backends()).await {
                Ok(Ok(alive)) if alive.contains(&host) => {}
                Ok(Err(error)) => {
                    tracing::debug!(host, %error, "the log of refused rows was not read");
                    return None;
                }
                _ => return None,
            }
        }
        self.refused_rows(error_url, &host).await
    }
}

fn first_lines(text: &str) -> String {
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let lines = text[..end].lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(SHOWN_LINES).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_lines_are_shown() {
        assert_eq!(first_lines(""), "");
        assert_eq!(first_lines("Reason: a \n\nReason: b\r\n"), "Reason: a\nReason: b");
        assert_eq!(first_lines(&"x\n".repeat(50)).lines().count(), SHOWN_LINES);
        let wide = first_lines(&format!("a{}", "\u{e9}".repeat(5000)));
        assert_eq!((wide.len(), wide.chars().count()), (LIMIT - 1, LIMIT / 2));
    }
}
