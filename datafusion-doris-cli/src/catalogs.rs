//! `--catalog NAME[=URL]`.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// A Doris cluster to show as a catalog.
#[derive(Clone, PartialEq, Eq)]
pub struct CatalogArg {
    /// Name in statements.
    pub(crate) name: String,
    /// `doris://fe:8030[/database]`; empty: the cluster of `${fenodes}`.
    pub(crate) location: String,
    /// Options of the catalog, from the URL.
    pub(crate) options: HashMap<String, String>,
}

impl fmt::Debug for CatalogArg {
    // The options may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogArg").field("name", &self.name).field("location", &self.location).finish_non_exhaustive()
    }
}

impl FromStr for CatalogArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, url) = text.split_once('=').unwrap_or((text, ""));
        let name = name.trim();
        if name.is_empty() {
            return Err("names no catalog, expected NAME or NAME=doris://fe:8030[/database][?option=value&…]".into());
        }
        let (location, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut options = HashMap::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) =
                parameter.split_once('=').ok_or("has an option without value, expected ?option=value&option=value")?;
            if options.insert(decoded(key)?, decoded(value)?).is_some() {
                return Err(format!("gives option '{key}' twice"));
            }
        }
        Ok(Self { name: name.to_owned(), location: location.to_owned(), options })
    }
}

/// `%XX` replaced.
fn decoded(text: &str) -> Result<String, String> {
    let broken = || "has a '%' that is not followed by two hexadecimal digits (a plain one is %25)".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(broken)?;
        let digits = std::str::from_utf8(digits).map_err(|_| broken())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 after percent-decoding".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_cluster_and_options() {
        let catalog: CatalogArg = "d=doris://fe:8030/sales?password=a%26b%3D%25&catalog.ttl=1m".parse().unwrap();
        assert_eq!((catalog.name.as_str(), catalog.location.as_str()), ("d", "doris://fe:8030/sales"));
        let expected = [("password", "a&b=%"), ("catalog.ttl", "1m")];
        assert_eq!(catalog.options, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(!format!("{catalog:?}").contains("a&b"));
        let plain: CatalogArg = "doris".parse().unwrap();
        assert_eq!((plain.name.as_str(), plain.location.as_str(), plain.options.len()), ("doris", "", 0));
    }

    #[test]
    fn broken_ones_are_refused() {
        for text in
            ["", "=doris://fe:8030", "d=doris://fe:8030?x", "d=doris://fe:8030?x=%2", "d=u?x=1&x=2", "d=u?x=%ff"]
        {
            assert!(text.parse::<CatalogArg>().is_err(), "{text}");
        }
    }
}
