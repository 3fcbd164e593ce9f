//! A client of Stream Load that knows nothing of this project, and follows no redirect by itself.

use reqwest::header::LOCATION;
use serde_json::Value;

use super::server::{PASSWORD, USER};
use super::{Outcome, Server};

pub struct Http {
    client: reqwest::Client,
    fe: String,
}

impl Http {
    /// A client of the server's FE.
    pub fn new(server: &Server) -> Outcome<Self> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { client, fe: server.fenodes.clone() })
    }

    /// Runs a statement.
    pub async fn statement(&self, sql: &str) -> Outcome<()> {
        let url = format!("http://{}/api/query/internal/information_schema", self.fe);
        let body = serde_json::json!({ "stmt": sql });
        let answer: Value =
            self.client.post(url).basic_auth(USER, Some(PASSWORD)).json(&body).send().await?.json().await?;
        if answer["code"] == 0 { Ok(()) } else { Err(format!("{sql}: {answer}").into()) }
    }

    /// A Stream Load with these further headers: the FE names the BE, which gets the body.
    pub async fn load(
        &self,
        table: &str,
        format: &str,
        headers: &[(&'static str, &'static str)],
        body: reqwest::Body,
    ) -> Outcome<()> {
        let url = format!("http://{}/api/bench/{table}/_stream_load", self.fe);
        let request = |url: &str| {
            let request = self
                .client
                .put(url)
                .basic_auth(USER, Some(PASSWORD))
                .header("expect", "100-continue")
                .header("format", format)
                // The bodies have a line for each row.
                .header("read_json_by_line", "true");
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
        };
        let redirect = request(&url).send().await?;
        let target = redirect.headers().get(LOCATION).ok_or("the FE sent no location")?.to_str()?.to_owned();
        let answer: Value = serde_json::from_str(&request(&target).body(body).send().await?.text().await?)?;
        if answer["Status"] == "Success" { Ok(()) } else { Err(format!("load into {table}: {answer}").into()) }
    }
}
