//! A certificate that is replaced while it is in use.

use crate::figures::Figures;
use crate::wire::{Ca, Signed};
use setpoint_webhook::certificate::{
    CertificateError, CertificateFiles, CertificateWatcher, FILE_BYTES_MAX, POLL_INTERVAL,
};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn write(folder: &TempDir, certificate: &str, key: &str) -> CertificateFiles {
    let files = CertificateFiles::in_folder(folder.path());
    std::fs::write(&files.certificate, certificate).unwrap();
    std::fs::write(&files.key, key).unwrap();
    files
}

fn write_pair(folder: &TempDir, pair: &Signed) -> CertificateFiles {
    write(folder, &pair.certificate_pem, &pair.key_pem)
}

#[tokio::test]
async fn good_pair_replaces_the_old_one_and_a_bad_one_does_not() {
    let (ca, folder, figures) = (Ca::new(), TempDir::new().unwrap(), Figures::default());
    let (first, second) = (ca.sign(), ca.sign());
    let files = write_pair(&folder, &first);
    let mut watcher =
        CertificateWatcher::open(files.clone(), Arc::new(figures.clone())).await.unwrap();
    let current = watcher.current();
    let notified = Arc::new(Mutex::new(Vec::new()));
    let sender = notified.clone();
    watcher
        .on_change(move |certificate| sender.lock().unwrap().push(certificate.chain()[0].clone()));
    assert_eq!(
        *notified.lock().unwrap(),
        std::slice::from_ref(&first.certificate),
        "at registration"
    );

    // Written again with the same content: no change.
    write_pair(&folder, &first);
    assert!(!watcher.poll().await.unwrap());
    // Half of the new pair, rubbish, nothing at all: the old one stays.
    write(&folder, &second.certificate_pem, &first.key_pem);
    assert!(matches!(watcher.poll().await, Err(CertificateError::Mismatch(_))));
    write(&folder, "", &second.key_pem);
    assert!(matches!(watcher.poll().await, Err(CertificateError::NoCertificate(_))));
    write(&folder, &second.certificate_pem, "rubbish");
    assert!(matches!(watcher.poll().await, Err(CertificateError::NoKey(_))));
    write(&folder, &second.certificate_pem, &"x".repeat(FILE_BYTES_MAX + 1));
    assert!(matches!(watcher.poll().await, Err(CertificateError::TooLarge { .. })));
    std::fs::remove_file(&files.key).unwrap();
    assert!(matches!(watcher.poll().await, Err(CertificateError::Read { .. })));
    assert_eq!(current.get().chain()[0], first.certificate);
    assert_eq!(notified.lock().unwrap().len(), 1);

    write_pair(&folder, &second);
    assert!(watcher.poll().await.unwrap());
    assert_eq!(current.get().chain()[0], second.certificate);
    assert_eq!(*notified.lock().unwrap(), [first.certificate, second.certificate]);
    assert_eq!((figures.get("certificate reads"), figures.get("certificate read errors")), (8, 5));
}

#[tokio::test]
async fn first_read_must_succeed() {
    let (ca, folder) = (Ca::new(), TempDir::new().unwrap());
    let files = CertificateFiles::in_folder(folder.path());
    let opened = CertificateWatcher::open(files.clone(), Arc::new(())).await;
    assert!(
        matches!(opened, Err(CertificateError::Read { path, .. }) if path == files.certificate)
    );
    write(&folder, &ca.sign().certificate_pem, &ca.sign().key_pem);
    let opened = CertificateWatcher::open(files, Arc::new(())).await;
    assert!(matches!(opened, Err(CertificateError::Mismatch(_))));
}

#[tokio::test(start_paused = true)]
async fn files_are_polled_until_stop() {
    let (ca, folder, figures) = (Ca::new(), TempDir::new().unwrap(), Figures::default());
    let (first, second) = (ca.sign(), ca.sign());
    let files = write_pair(&folder, &first);
    let watcher = CertificateWatcher::open(files, Arc::new(figures.clone())).await.unwrap();
    let (current, stop) = (watcher.current(), CancellationToken::new());
    write_pair(&folder, &second);
    let waits = async {
        let started = tokio::time::Instant::now();
        while current.get().chain()[0] != second.certificate {
            tokio::time::sleep(POLL_INTERVAL / 10).await;
        }
        assert!(started.elapsed() <= POLL_INTERVAL * 2, "{:?}", started.elapsed());
        stop.cancel();
    };
    tokio::join!(watcher.run(stop.clone()), waits);
}
