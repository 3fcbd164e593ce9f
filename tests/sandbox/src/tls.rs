//! TLS of a sandbox: a certificate authority made at the start, and one certificate for all nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Which servers speak TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tls {
    /// FEs as with `enable_https`: a second HTTP port with TLS, to which the plain one redirects most calls.
    pub http: bool,
    /// BEs as with `enable_https` on them: their HTTP port speaks TLS only, and FEs redirect loads to `https`. Not set,
    /// the redirect names `http`, as newer builds do whatever the FE speaks.
    pub be_http: bool,
    /// MySQL: offered by the capability flag; plain connections are served too.
    pub mysql: bool,
    /// Refuse a MySQL login without TLS.
    pub mysql_required: bool,
    /// Arrow Flight SQL of FEs and BEs: locations are `grpc+tls://`.
    pub flight: bool,
}

impl Tls {
    /// Everything.
    pub fn all() -> Self {
        Self { http: true, be_http: true, mysql: true, mysql_required: false, flight: true }
    }

    /// Whether any server speaks TLS.
    pub fn any(self) -> bool {
        self.http || self.be_http || self.mysql || self.flight
    }
}

impl std::str::FromStr for Tls {
    type Err = String;

    /// Reads a list such as `http,mysql,flight`; further words are `be-http`, `mysql-required` and `all`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut tls = Self::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "http" => tls.http = true,
                "be-http" => tls.be_http = true,
                "mysql" => tls.mysql = true,
                "mysql-required" => (tls.mysql, tls.mysql_required) = (true, true),
                "flight" => tls.flight = true,
                "all" => {
                    tls = Self { mysql_required: tls.mysql_required, ..Self::all() };
                }
                other => {
                    return Err(format!(
                        "unknown protocol `{other}`, use http, be-http, mysql, mysql-required, flight or all"
                    ));
                }
            }
        }
        Ok(tls)
    }
}

/// Why no certificate was made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS settings.
    #[error("cannot set up TLS: {0}")]
    Config(#[from] rustls::Error),
}

/// The authority and what the servers need.
pub(crate) struct Certificates {
    /// Certificate of the authority, for clients.
    pub ca_pem: String,
    /// For HTTP/1.1 and MySQL.
    pub plain: Arc<ServerConfig>,
    /// For HTTP/2.
    pub h2: Arc<ServerConfig>,
}

impl Certificates {
    /// An authority and a certificate for `localhost`, the loopback addresses and `hosts`.
    pub fn new(hosts: &[&str]) -> Result<Self, TlsError> {
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.distinguished_name.push(DnType::CommonName, "doris-sandbox test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let names: BTreeSet<&str> =
            ["localhost", "127.0.0.1", "::1"].into_iter().chain(hosts.iter().copied()).collect();
        let mut server = CertificateParams::new(names.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
        server.distinguished_name.push(DnType::CommonName, "doris-sandbox");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;

        // The provider is named here: a process-wide one would bind every program that embeds a sandbox.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let plain = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        let mut h2 = plain.clone();
        h2.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { ca_pem: authority.pem(), plain: Arc::new(plain), h2: Arc::new(h2) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_read_from_a_list() {
        let tls: Tls = "http, flight".parse().expect("list");
        assert_eq!(tls, Tls { http: true, flight: true, ..Tls::default() });
        assert!("mysql-required".parse::<Tls>().expect("list").mysql);
        assert_eq!("all".parse::<Tls>(), Ok(Tls::all()));
        assert!(!"".parse::<Tls>().expect("list").any());
        assert!("https".parse::<Tls>().is_err());
    }

    #[test]
    fn a_certificate_is_made_without_a_process_wide_provider() {
        let made = Certificates::new(&["10.1.2.3", "doris.example"]).expect("certificates");
        assert!(made.ca_pem.starts_with("-----BEGIN CERTIFICATE-----"), "{}", made.ca_pem);
        assert_eq!(made.h2.alpn_protocols, [b"h2".to_vec()]);
    }
}
