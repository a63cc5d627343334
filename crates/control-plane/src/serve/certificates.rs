//! The certificates of a running server: loading and renewal.

use super::authorities::{
    AuthorityFiles, FollowedAuthorities, FrontProxyError, check_names, pem_of, published_names,
};
use super::{CertDirError, ServeError, ServeOptions, cert_dir};
use setpoint_apiserver::RequestHeader;
use setpoint_apiserver::listen::{
    CertificateWatcher, CurrentCertificate, Loaded, NamedCertificate, Pki, PkiFiles, Tls,
};
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the server's own certificate is checked: daily, which leaves a month of attempts
/// before it expires.
const RENEW_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificates and credentials of the secure listener.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The CA and the administrator.
    pub(super) pki: Pki,
    /// The CA of the listener's certificate, in PEM.
    pub(super) ca: String,
    /// The authorities of client certificates, and what is published about them.
    pub(super) authorities: AuthorityFiles,
    pub(super) front_proxy: Option<Arc<RequestHeader>>,
    pub(super) tls: Tls,
    pub(super) freshness: Freshness,
    /// The files of certificates for certain hosts.
    pub(super) named: Vec<CertificateWatcher>,
}

/// How the presented certificate is renewed.
#[derive(Debug)]
pub(super) enum Freshness {
    /// Someone else maintains its files, which are watched.
    Files(CertificateWatcher),
    /// It is made here, and renewed before it expires.
    Own(Renewal),
}

impl Certificates {
    /// Loads or makes the certificates. The server's own is also for the addresses at which
    /// others reach it.
    pub(super) fn open(
        options: &ServeOptions,
        published: &[IpAddr],
        clock: &Clock,
    ) -> Result<Self, ServeError> {
        let mut names = options.names.clone();
        names.push(options.address.ip().to_string());
        for address in published.iter().map(IpAddr::to_string) {
            if !names.contains(&address) {
                names.push(address);
            }
        }
        let pki = match &options.cert_dir {
            Some(folder) => cert_dir::open(folder, clock.now(), &names)?,
            None => Pki::generate(clock.now(), &names)?,
        };
        let (current, ca, freshness) = match &options.tls_files {
            Some(files) => {
                let watcher = CertificateWatcher::open(files.clone())?;
                let current = watcher.current();
                let ca = pem_of(current.get().chain());
                (current, ca, Freshness::Files(watcher))
            }
            None => {
                let renewal = Renewal {
                    folder: options.cert_dir.clone(),
                    files: pki.files().clone(),
                    names,
                    clock: clock.clone(),
                    current: pki.current(),
                };
                (pki.current(), pki.ca_pem().to_owned(), Freshness::Own(renewal))
            }
        };
        let ca = match options.root_ca_file.clone() {
            Some(file) => FollowedAuthorities::open("root-ca-file", Some(file), String::new())?.1,
            None => ca,
        };
        let file = options.client_ca_file.clone();
        let own = if options.trusts_own_ca() { pki.ca_pem().to_owned() } else { String::new() };
        let (clients, pem) = FollowedAuthorities::open("client-ca-file", file, own)?;
        let mut tls = Tls::new(current)
            .policy(options.tls_policy.clone())
            .client_authorities(clients.current.clone());
        let mut named = Vec::new();
        for (files, hosts) in &options.named_tls_files {
            let watcher = CertificateWatcher::open(files.clone());
            let watcher = watcher.map_err(ServeError::NamedCertificate)?;
            tls = tls.named(NamedCertificate::new(watcher.current(), hosts));
            named.push(watcher);
        }
        let mut published = BTreeMap::from([("client-ca-file".to_owned(), pem)]);
        let mut front_proxy = None;
        let mut followed = Vec::new();
        if let Some((path, names)) = &options.front_proxy {
            check_names(names)?;
            let (key, file) = ("requestheader-client-ca-file", Some(path.clone()));
            let (proxies, pem) = FollowedAuthorities::open(key, file, String::new())?;
            let users = clients.current.certificates();
            let is_of_users = |proxy| users.contains(proxy);
            let overlap = proxies.current.certificates().iter().any(is_of_users);
            if names.allowed_names.is_empty() && overlap {
                return Err(FrontProxyError::Overlap.into());
            }
            published.insert(key.to_owned(), pem);
            published.extend(published_names(names));
            let authorities = proxies.current.clone();
            let proxy = RequestHeader::new(names.clone(), authorities, clock.clone());
            front_proxy = Some(Arc::new(proxy));
            followed.push(proxies);
        }
        followed.push(clients);
        let published = Arc::new(parking_lot::Mutex::new(published));
        let authorities = AuthorityFiles { followed, published };
        Ok(Self { pki, ca, authorities, front_proxy, tls, freshness, named })
    }
}

impl Freshness {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        match self {
            Self::Files(watcher) => watcher.run(stop, |_| {}).await,
            Self::Own(renewal) => renewal.run(stop).await,
        }
    }
}

/// Renews the server's certificate in its last month.
#[derive(Debug)]
pub(super) struct Renewal {
    folder: Option<PathBuf>,
    files: PkiFiles,
    names: Vec<String>,
    clock: Clock,
    current: CurrentCertificate,
}

impl Renewal {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a sleep holds no state.
                () = tokio::time::sleep(RENEW_INTERVAL) => {}
            }
            if let Err(error) = self.renew_if_due() {
                let error = chain(&error);
                tracing::error!(
                    error,
                    "the server's certificate cannot be renewed: the one in use stays"
                );
            }
        }
    }

    /// Renews the certificate if it is due.
    fn renew_if_due(&mut self) -> Result<(), CertDirError> {
        let loaded = Pki::load(self.files.clone(), self.clock.now(), &self.names);
        let (pki, Loaded::Renewed(why)) = loaded.map_err(|source| CertDirError::Pki {
            folder: self.folder.clone().unwrap_or_default(),
            source,
        })?
        else {
            return Ok(());
        };
        self.current.set(pki.current().get());
        self.files = pki.files().clone();
        tracing::info!(why, "renewed the server's certificate");
        match &self.folder {
            Some(folder) => cert_dir::renew(folder, &self.files),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::time::Timestamp;

    #[tokio::test(start_paused = true)]
    async fn certificate_in_use_is_renewed_while_the_server_runs() {
        let day = Duration::from_secs(24 * 60 * 60);
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("pki");
        let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
        let options = ServeOptions::new(([127, 0, 0, 1], 0)).cert_dir(&folder);
        let certificates = Certificates::open(&options, &[], &clock).unwrap();
        let current = certificates.pki.current();
        let first = current.get().chain().to_vec();
        let stop = CancellationToken::new();
        let story = async {
            tokio::time::sleep(day * 330).await;
            assert_eq!(current.get().chain(), first);
            tokio::time::sleep(day * 20).await;
            stop.cancel();
        };
        tokio::join!(certificates.freshness.run(stop.clone()), story);
        let second = current.get().chain().to_vec();
        assert_ne!(second, first);
        // The next start finds the same certificate, and it is valid for most of a year.
        let later = clock.now() + day * 300;
        let pki = cert_dir::open(&folder, later, &["127.0.0.1".to_owned()]).unwrap();
        assert_eq!(pki.current().get().chain(), second);
    }

    #[tokio::test(start_paused = true)]
    async fn authorities_of_clients_are_replaced_while_the_server_runs() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
        // Any CA will do: those of other servers are at hand.
        let ca = || Pki::generate(clock.now(), &["127.0.0.1".to_owned()]).unwrap();
        let (first, second) = (ca(), ca());
        let file = dir.path().join("ca.crt");
        // With the key of the authority, which is not published.
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        std::fs::write(&file, format!("{key}{}{key}", first.ca_pem())).unwrap();
        let options = ServeOptions::new(([127, 0, 0, 1], 0)).client_ca_file(&file);
        let Certificates { authorities, .. } = Certificates::open(&options, &[], &clock).unwrap();
        let current = authorities.followed[0].current.clone();
        let published = authorities.published.clone();
        let trusts = |pki: &Pki| current.certificates().contains(pki.ca_certificate());
        let publishes =
            |pki: &Pki| published.lock()["client-ca-file"].contains(pki.ca_pem().trim());
        assert!(trusts(&first) && publishes(&first) && !trusts(&second));
        assert!(!published.lock()["client-ca-file"].contains("PRIVATE"));
        let stop = CancellationToken::new();
        let story = async {
            // A test of Kubernetes allows four seconds.
            let poll = Duration::from_millis(1500);
            // What cannot be used changes nothing.
            std::fs::write(&file, "no PEM").unwrap();
            tokio::time::sleep(poll).await;
            assert!(trusts(&first) && publishes(&first));
            std::fs::write(&file, second.ca_pem()).unwrap();
            tokio::time::sleep(poll).await;
            assert!(trusts(&second) && publishes(&second) && !trusts(&first));
            // The server's own authority stays.
            assert_eq!(current.certificates().len(), 2);
            stop.cancel();
        };
        tokio::join!(authorities.run(stop.clone()), story);
    }
}
