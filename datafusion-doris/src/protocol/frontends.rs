//! `SHOW FRONTENDS`: above all the Arrow Flight SQL port.

use super::Malformed;

/// One FE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontend {
    /// Host as the cluster knows it.
    pub host: String,
    /// HTTP port.
    pub http_port: Option<u16>,
    /// MySQL protocol port.
    pub query_port: Option<u16>,
    /// Arrow Flight SQL port; `None` = not started (-1) or not told.
    pub flight_port: Option<u16>,
    /// Alive; true when the column is missing.
    pub alive: bool,
    /// Master.
    pub master: bool,
    /// The FE that answered.
    pub current: bool,
}

/// Reads the result of `SHOW FRONTENDS`; columns are found by name, any case.
///
/// # Errors
/// [`Malformed`] when there is no host column.
pub fn parse_frontends(columns: &[String], rows: &[Vec<Option<String>>]) -> Result<Vec<Frontend>, Malformed> {
    let position = |name: &str| columns.iter().position(|column| column.eq_ignore_ascii_case(name));
    let host = position("Host").or_else(|| position("IP"));
    let host = host.ok_or_else(|| Malformed("SHOW FRONTENDS has no column Host".into()))?;
    let [http, query, flight] = ["HttpPort", "QueryPort", "ArrowFlightSqlPort"].map(position);
    let [alive, master, current] = ["Alive", "IsMaster", "CurrentConnected"].map(position);
    Ok(rows
        .iter()
        .map(|row| {
            let text = |at: Option<usize>| at.and_then(|at| row.get(at)?.as_deref()).map(str::trim);
            let port = |at| text(at).and_then(|text| text.parse::<u16>().ok()).filter(|port| *port > 0);
            let yes = |at| text(at).map(|text| text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("yes"));
            Frontend {
                host: text(Some(host)).unwrap_or_default().to_owned(),
                http_port: port(http),
                query_port: port(query),
                flight_port: port(flight),
                alive: yes(alive).unwrap_or(true),
                master: yes(master).unwrap_or(false),
                current: yes(current).unwrap_or(false),
            }
        })
        .collect())
}

/// The Flight port of the FE at `fenode` (`host:http_port`): by host and port, by host, else of the FE that answered,
/// else the one port all alive FEs share.
///
/// `None`: Flight is off there, or the rows do not tell which FE `fenode` is and their ports differ.
pub fn flight_port_of(frontends: &[Frontend], fenode: &str) -> Option<u16> {
    let (host, port) = fenode.rsplit_once(':').unwrap_or((fenode, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: Option<u16> = port.parse().ok();
    let same_host = |frontend: &&Frontend| frontend.host.eq_ignore_ascii_case(host);
    // Several FEs may stand behind one host name: a match must be of the port, or the only one.
    let by_port = frontends.iter().filter(same_host).find(|frontend| frontend.http_port == port && port.is_some());
    let mut by_host = frontends.iter().filter(same_host);
    let only_by_host = match (by_host.next(), by_host.next()) {
        (Some(frontend), None) => Some(frontend),
        _ => None,
    };
    let answered = || frontends.iter().find(|frontend| frontend.current);
    if let Some(frontend) = by_port.or(only_by_host).or_else(answered) {
        return frontend.flight_port;
    }
    let mut ports: Vec<u16> =
        frontends.iter().filter(|frontend| frontend.alive).filter_map(|frontend| frontend.flight_port).collect();
    ports.dedup();
    match ports.as_slice() {
        [port] => Some(*port),
        _ => None,
    }
}
