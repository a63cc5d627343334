//! The client certificate for servers of APIServices: in the certificate folder, or made for this
//! run.

use super::{CertDirError, ServeError, ServeOptions, cert_dir};
use crate::SharedParts;
use crate::aggregation::ProxyCertificate;
use serde_json::Value;
use setpoint_apiserver::listen::FrontProxy;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_webhook_client::Identity;
use std::collections::BTreeMap;
use std::path::Path;

/// The file of the key, the certificate and its CA.
const FILE: &str = "front-proxy-client.pem";

/// Sets the certificate, unless there is one, or authorities of others are the only ones; returns
/// its CA in PEM then.
pub(super) fn open(
    options: &ServeOptions,
    clock: &Clock,
    proxy: &ProxyCertificate,
    shared: Option<&SharedParts>,
) -> Result<Option<String>, ServeError> {
    if proxy.is_set() || options.is_exclusive && options.front_proxy.is_some() {
        return Ok(None);
    }
    let made = match (&options.cert_dir, shared) {
        (Some(folder), _) => in_folder(folder, clock.now())?,
        (None, Some(shared)) => shared.front_proxy(clock.now())?,
        (None, None) => FrontProxy::generate(clock.now())?,
    };
    let ca = made.ca().to_owned();
    let identity = Identity {
        certificates: made.certificate().to_owned().into(),
        key: made.key().to_owned().into(),
    };
    Ok(proxy.set(|| identity).then_some(ca))
}

/// The names and headers of the proxy, by key of the published ConfigMap.
const WORDS: [(&str, &str); 5] = [
    (ALLOWED_NAMES, "front-proxy-client"),
    ("requestheader-username-headers", "X-Remote-User"),
    ("requestheader-uid-headers", "X-Remote-Uid"),
    ("requestheader-group-headers", "X-Remote-Group"),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
];
const ALLOWED_NAMES: &str = "requestheader-allowed-names";

/// Adds the proxy to what extension servers read about front proxies.
pub(crate) fn add_front_proxy(members: &mut BTreeMap<String, String>, ca: &str) {
    let authorities = members.entry("requestheader-client-ca-file".to_owned()).or_default();
    if !authorities.is_empty() && !authorities.ends_with('\n') {
        authorities.push('\n');
    }
    authorities.push_str(ca);
    for (key, word) in WORDS {
        let held = members.get(key).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
        // An empty list allows every name.
        let is_open = key == ALLOWED_NAMES && held.as_ref().is_some_and(Vec::is_empty);
        let mut words = held.unwrap_or_default();
        if !is_open && !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
            members.insert(key.to_owned(), Value::from(words).to_string());
        }
    }
}

/// The certificate in a folder. Makes it if the file does not exist, or is good for less than a
/// month.
fn in_folder(folder: &Path, now: Timestamp) -> Result<FrontProxy, CertDirError> {
    let pki = |source| CertDirError::Pki { folder: folder.to_owned(), source };
    if folder.join(FILE).exists() {
        let known = FrontProxy::load(&cert_dir::read(folder, FILE)?, now).map_err(pki)?;
        if let Some(known) = known {
            return Ok(known);
        }
        let made = FrontProxy::generate(now).map_err(pki)?;
        cert_dir::replace(folder, FILE, &made.to_pem())?;
        return Ok(made);
    }
    let made = FrontProxy::generate(now).map_err(pki)?;
    // Another server may be faster: its certificate is the one to use.
    cert_dir::create_file(folder, FILE, &made.to_pem())?;
    let pem = cert_dir::read(folder, FILE)?;
    FrontProxy::load(&pem, now).map_err(pki).map(|known| known.unwrap_or(made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn proxy_is_added_to_what_others_may_do() {
        let mut members = BTreeMap::new();
        add_front_proxy(&mut members, "ca");
        assert_eq!(members["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
        let mut members = BTreeMap::from([
            ("requestheader-allowed-names".to_owned(), "[]".to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-User"]"#.to_owned()),
            ("requestheader-client-ca-file".to_owned(), "other".to_owned()),
        ]);
        add_front_proxy(&mut members, "ca");
        assert_eq!(members["requestheader-allowed-names"], "[]");
        assert_eq!(members["requestheader-username-headers"], r#"["X-User","X-Remote-User"]"#);
        assert_eq!(members["requestheader-client-ca-file"], "other\nca");
    }

    #[test]
    fn certificate_is_the_same_after_a_restart_and_is_replaced_before_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_secs(1_767_225_600);
        let day = Duration::from_secs(24 * 60 * 60);
        let first = in_folder(dir.path(), now).unwrap();
        assert_eq!(in_folder(dir.path(), now + day * 300).unwrap().to_pem(), first.to_pem());
        let late = now + day * 3630;
        let second = in_folder(dir.path(), late).unwrap();
        assert_ne!(second.ca(), first.ca());
        assert_eq!(in_folder(dir.path(), late).unwrap().to_pem(), second.to_pem());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::write(dir.path().join(FILE), "x").unwrap();
        let error = in_folder(dir.path(), now).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "front-proxy-client.pem is damaged: it has no key");
    }
}
