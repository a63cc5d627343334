use super::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use x509_parser::prelude::FromDer as _;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn authority(key: &KeyPair) -> CertificateAuthority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "test-ca");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2060, 1, 1);
    let pem = params.self_signed(key).unwrap().pem();
    CertificateAuthority::from_pem(&pem, &key.serialize_pem()).unwrap()
}

/// A request for these names, by a new key.
fn request(common_name: &str, organization: &str, names: &[SanType]) -> Requested {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.subject_alt_names = names.to_vec();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    Requested::from_pem(pem.as_bytes()).unwrap()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn certificate_has_what_was_requested_and_is_signed() {
    let names = [
        SanType::DnsName("node".try_into().unwrap()),
        SanType::IpAddress("192.0.2.1".parse().unwrap()),
    ];
    let requested = request("system:node:n", "system:nodes", &names);
    let usages = words(&["server auth", "digital signature", "client auth"]);
    for key in
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
    {
        let key = KeyPair::generate_for(key).unwrap();
        let authority = authority(&key);
        let pem = authority.sign(&requested, &usages, 24 * HOUR, NOW, [0xff; 16]).unwrap();
        let block = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
        let held = block.parse_x509().unwrap();
        let ca = x509_parser::prelude::SubjectPublicKeyInfo::from_der(
            &rcgen::PublicKeyData::subject_public_key_info(&key),
        )
        .map(|(_, info)| held.verify_signature(Some(&info)));
        assert!(ca.unwrap().is_ok(), "{:?}", key.algorithm());
        assert_eq!(held.issuer().to_string(), "CN=test-ca");
        assert_eq!(held.subject().to_string(), "O=system:nodes, CN=system:node:n");
        let validity = held.validity();
        let seconds = i64::try_from(NOW.0.as_secs()).unwrap();
        assert_eq!(validity.not_before.timestamp(), seconds - 300);
        assert_eq!(validity.not_after.timestamp(), seconds + 24 * 3600 - 300);
        let names = held.subject_alternative_name().unwrap().unwrap();
        assert_eq!((names.value.general_names.len(), names.critical), (2, false));
        let usage = held.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.digital_signature());
        assert!(!usage.value.key_encipherment());
        let extended = held.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && extended.client_auth && !extended.any);
        assert!(!held.is_ca());
        assert_eq!(held.raw_serial()[0], 0x7f);
    }
}

#[test]
fn certificates_do_not_outlive_their_authority() {
    let authority = authority(&KeyPair::generate().unwrap());
    let requested = request("u", "g", &[]);
    let sign = |lifetime, now| authority.sign(&requested, &[], lifetime, now, [1; 16]);
    let end = |pem: String| not_after(pem.as_bytes()).unwrap();
    assert_eq!(end(sign(HOUR, NOW).unwrap()), NOW + HOUR, "short ones are not shortened");
    let last = Timestamp::parse("2060-01-01T00:00:00Z").unwrap();
    assert_eq!(end(sign(HOUR * 24 * 365 * 50, NOW).unwrap()), last);
    assert!(sign(HOUR, last).unwrap_err().to_string().starts_with("the signer has expired"));
    let unknown = authority.sign(&requested, &words(&["x"]), HOUR, NOW, [1; 16]);
    assert_eq!(unknown.unwrap_err().to_string(), "unrecognized usage values: [\"x\"]");
}

/// A request that openssl made, with the subject `CN=first, emailAddress=a@b.c, O=groß, CN=ann,
/// O=dev, O=dev, serialNumber=7, C=DE` and the names `URI:spiffe://x/y, email:a@b.c, IP:192.0.2.1,
/// DNS:z.example, dirName:CN=x, DNS:a.example`.
const ODD: &[u8] = b"\
-----BEGIN CERTIFICATE REQUEST-----
MIIBkTCCATgCAQAweTEOMAwGA1UEAwwFZmlyc3QxFDASBgkqhkiG9w0BCQEWBWFA
Yi5jMQ4wDAYDVQQKDAVncm/DnzEMMAoGA1UEAwwDYW5uMQwwCgYDVQQKDANkZXYx
DDAKBgNVBAoMA2RldjEKMAgGA1UEBRMBNzELMAkGA1UEBhMCREUwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAASN3Whaxf4M22m1JZ7dUNr/Ex4hUgphM3xTMiKBho+d
vGHf9KVd9cQtCgQnIgdBIiNeSVX+kehfJhq5PVRJzGGXoF0wWwYJKoZIhvcNAQkO
MU4wTDBKBgNVHREEQzBBhgxzcGlmZmU6Ly94L3mBBWFAYi5jhwTAAAIBggl6LmV4
YW1wbGWkDjAMMQowCAYDVQQDDAF4gglhLmV4YW1wbGUwCgYIKoZIzj0EAwIDRwAw
RAIgZNUI2ZJ9aLqFzAPMD3PcurLB3xJvhAQVM7qXLhL6pvsCIBKSRJ0XwNs2/wt+
G4p/NvuecIXTVQmde25jW/XjPuh6
-----END CERTIFICATE REQUEST-----
";

#[test]
fn a_certificate_has_the_subject_and_the_names_in_the_order_of_go() {
    let requested = Requested::from_pem(ODD).unwrap();
    assert_eq!(requested.common_name, "ann");
    let authority = authority(&KeyPair::generate().unwrap());
    let pem = authority.sign(&requested, &[], HOUR, NOW, [1; 16]).unwrap();
    let block = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let held = block.parse_x509().unwrap();
    let parts = held.subject().iter().map(|part| {
        let values = part.iter().map(|value| {
            (value.attr_type().to_id_string(), value.attr_value().tag().0, value.as_str().unwrap())
        });
        values.collect::<Vec<_>>()
    });
    let (printable, utf8) = (19, 12);
    assert_eq!(
        parts.collect::<Vec<_>>(),
        [
            vec![("2.5.4.6".to_owned(), printable, "DE")],
            vec![("2.5.4.10".to_owned(), printable, "dev"), ("2.5.4.10".to_owned(), utf8, "groß"),],
            vec![("2.5.4.3".to_owned(), printable, "ann")],
            vec![("2.5.4.5".to_owned(), printable, "7")],
        ]
    );
    let names = held.subject_alternative_name().unwrap().unwrap().value;
    let names = names.general_names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "DNSName(z.example)",
            "DNSName(a.example)",
            "RFC822Name(a@b.c)",
            "IPAddress(c0:00:02:01)",
            "URI(spiffe://x/y)",
        ]
    );
}

#[test]
fn a_subject_of_many_values_is_read_in_time() {
    // Without order, which a set that sorts by insertion takes a quadratic time for.
    let mut values = BTreeMap::new();
    let many = (0..50_000).rev().map(|n| format!("{n:06}")).collect::<Vec<_>>();
    values.insert(10, many);
    let subject = request::subject(&mut values).unwrap();
    assert_eq!(subject.0[0].0.len(), 50_000);
}

#[test]
fn keys_and_certificates_belong_together() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let pem = CertificateParams::new(Vec::new()).unwrap().self_signed(&one).unwrap().pem();
    let refused = CertificateAuthority::from_pem(&pem, &other.serialize_pem());
    assert!(matches!(refused, Err(AuthorityError::Pair)));
    assert!(CertificateAuthority::from_pem("x", &one.serialize_pem()).is_err());
    assert!(CertificateAuthority::from_pem(&pem, "x").is_err());
}

#[test]
fn signers_refuse_what_is_not_for_them() {
    let dns = [SanType::DnsName("node".try_into().unwrap())];
    let mail = [SanType::Rfc822Name("a@b".try_into().unwrap())];
    let node = request("system:node:n", "system:nodes", &[]);
    let serving = request("system:node:n", "system:nodes", &dns);
    let client = words(&["digital signature", "key encipherment", "client auth"]);
    let server = words(&["digital signature", "server auth"]);
    let check = |requested: &Requested, signer, usages: &[String]| {
        requested.check(signer, usages).err().unwrap_or_default()
    };
    assert_eq!(check(&node, KUBELET_CLIENT, &client), "");
    assert_eq!(check(&serving, KUBELET_SERVING, &server), "");
    assert_eq!(check(&node, CLIENT, &client), "");
    assert_eq!(check(&node, LEGACY, &words(&["any"])), "");
    for (requested, signer, usages, message) in [
        (
            &request("system:node:n", "other", &[]),
            KUBELET_CLIENT,
            &client,
            "subject organization is not system:nodes",
        ),
        (&serving, KUBELET_CLIENT, &client, "DNS subjectAltNames are not allowed"),
        (
            &request("u", "system:nodes", &[]),
            KUBELET_CLIENT,
            &client,
            "subject common name does not begin with system:node:",
        ),
        (
            &node,
            KUBELET_CLIENT,
            &server,
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (&node, KUBELET_SERVING, &server, "DNS or IP subjectAltName is required"),
        (
            &serving,
            KUBELET_SERVING,
            &client,
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (
            &request("system:node:n", "system:nodes", &mail),
            KUBELET_CLIENT,
            &client,
            "Email subjectAltNames are not allowed",
        ),
        (&node, CLIENT, &server, "invalid usage for client certificate: server auth"),
        (
            &node,
            CLIENT,
            &words(&["digital signature"]),
            "missing required usage for client certificate: client auth",
        ),
    ] {
        assert_eq!(check(requested, signer, usages), message);
    }
}
