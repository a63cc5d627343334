use super::*;
use crate::listen::Tls;
use setpoint_object::time::Clock;

const NOW: Timestamp = Timestamp(Duration::from_secs(1_700_000_000));

fn later(days: u32) -> Timestamp {
    Timestamp(NOW.0 + DAY * days)
}
fn load(files: &PkiFiles, at: Timestamp, names: &[&str]) -> Result<(Pki, Loaded), PkiError> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    Pki::load(files.clone(), at, &names)
}

fn make_server(pki: &Pki) {
    let tls = Tls::from(pki);
    let authorities = tls.authorities().unwrap().into_iter().collect();
    tls.source(Clock::starting_at(NOW), authorities).unwrap();
}

#[test]
fn certificates_make_a_server() {
    let pki = Pki::generate(NOW, &["example.com".into()]).unwrap();
    make_server(&pki);
    assert_eq!(pki.admin_token().len(), 43);
    assert_ne!(pki.admin_token(), Pki::generate(NOW, &[]).unwrap().admin_token());
}

#[test]
fn stored_certificates_are_used_again() {
    let made = Pki::generate(NOW, &["example.com".into(), "10.0.0.1".into()]).unwrap();
    let (loaded, what) = load(made.files(), later(300), &["example.com", "10.0.0.1"]).unwrap();
    assert_eq!(what, Loaded::Same);
    assert_eq!(loaded.files(), made.files());
    assert_eq!(loaded.admin_token(), made.admin_token());
    make_server(&loaded);
}

#[test]
fn the_servers_certificate_is_renewed_before_it_expires_and_for_other_names() {
    let made = Pki::generate(NOW, &[]).unwrap();
    for (at, names, why) in [
        (later(340), &[] as &[&str], "it is good for less than 30 days"),
        (later(1000), &[], "it is good for less than 30 days"),
        (later(1), &["example.com"], "it is not for example.com"),
        (later(1), &["10.0.0.1"], "it is not for 10.0.0.1"),
    ] {
        let (loaded, what) = load(made.files(), at, names).unwrap();
        assert_eq!(what, Loaded::Renewed(why.to_owned()));
        assert_eq!(loaded.files().ca_crt, made.files().ca_crt);
        assert_eq!(loaded.files().server_key, made.files().server_key, "one file changes");
        assert_ne!(loaded.files().server_crt, made.files().server_crt);
        // The new one is signed by the same CA and valid from then on.
        let (_, what) = load(loaded.files(), at, names).unwrap();
        assert_eq!(what, Loaded::Same);
    }
    let other = Pki::generate(NOW, &[]).unwrap();
    let mut files = made.files().clone();
    files.server_crt.clone_from(&other.files().server_crt);
    let (_, what) = load(&files, NOW, &[]).unwrap();
    assert_eq!(what, Loaded::Renewed("it has another key".to_owned()));
}

#[test]
fn expired_or_damaged_files_are_refused_by_name() {
    let made = Pki::generate(NOW, &[]).unwrap();
    assert!(matches!(load(made.files(), later(4000), &[]), Err(PkiError::Expired)));
    let other = Pki::generate(NOW, &[]).unwrap();
    let spoil = |change: &dyn Fn(&mut PkiFiles)| {
        let mut files = made.files().clone();
        change(&mut files);
        load(&files, NOW, &[]).unwrap_err().to_string()
    };
    let text = spoil(&|files| files.ca_crt.truncate(100));
    assert!(text.starts_with("ca.crt is damaged"), "{text}");
    let text = spoil(&|files| files.ca_key.clone_from(&other.files.ca_key));
    assert_eq!(text, "ca.key is damaged: it is not the key of the certificate beside it");
    let text = spoil(&|files| files.admin_crt.clear());
    assert!(text.starts_with("admin.crt is damaged"), "{text}");
    let text = spoil(&|files| {
        files.admin_crt.clone_from(&other.files.admin_crt);
        files.admin_key.clone_from(&other.files.admin_key);
    });
    assert!(text.starts_with("admin.crt is damaged"), "of another CA: {text}");
    let text = spoil(&|files| files.server_key = "no key".to_owned());
    assert!(text.starts_with("apiserver.key is damaged"), "{text}");
    let text = spoil(&|files| files.server_crt = files.server_crt.replace('M', "N"));
    assert!(text.starts_with("apiserver.crt is damaged"), "{text}");
}
