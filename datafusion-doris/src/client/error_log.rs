//! The rows that a load refused, as a BE keeps them.

use std::time::Duration;

use reqwest::Url;

use super::DorisClient;
use super::http::authority;

/// Bytes read of a log.
const LIMIT: usize = 4096;
/// Time for it: the reason is of use to a reader, the load is over without it.
const PATIENCE: Duration = Duration::from_secs(5);

impl DorisClient {
    /// The first refused row and its reason. Asked of the BE at `host` that took the load and of nobody else, without
    /// credentials; `None` when it does not tell.
    pub(super) async fn first_refused_row(&self, error_url: &str, host: &str) -> Option<String> {
        let url = Url::parse(error_url).ok().filter(|url| authority(url) == host)?;
        let text = match tokio::time::timeout(PATIENCE, self.inner.http.get_start(url, LIMIT)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                tracing::debug!(host, %error, "the log of refused rows was not read");
                return None;
            }
            Err(_) => return None,
        };
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_string)
    }
}
