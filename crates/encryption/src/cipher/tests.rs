use super::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const KINDS: [Kind; 3] = [Kind::AesGcm, Kind::AesCbc, Kind::Secretbox];
const PLACE: &[u8] = b"/registry/secrets/default/a";
const VALUE: &[u8] = br#"{"kind":"Secret","data":{"p":"aHVudGVyMg=="}}"#;

/// Created with other programs (OpenSSL by Python's `cryptography`, libsodium by PyNaCl): keys 00
/// 01 02 …, nonces 64 65 66 …, the value and the place above, in the layout that Kubernetes
/// documents.
const VECTORS: [(Kind, usize, &str); 7] = [
    (
        Kind::AesGcm,
        16,
        "6465666768696a6b6c6d6e6f614025ccb5669ac0b96d3273f4af5fce1caa1c9ee6c8ff608f4dc1b586d096bbec893663dd616af6b765053bf0ae6db9a784ae70aaf86ee6eaa453bbc8",
    ),
    (
        Kind::AesGcm,
        24,
        "6465666768696a6b6c6d6e6f924ad0153ccb2c02f18287628897ef9cf17b3aab8ee853d5fa6138e88c4cf9080c2163d80e6c09d743ae41cc51c6b4d7e0031ad2e1421ca61139d48e8a",
    ),
    (
        Kind::AesGcm,
        32,
        "6465666768696a6b6c6d6e6f3339b50f178d74a41c313a8ba8001edf6ee0626bff0dd148dcf3dc6ac181c400c29c24871a6bd663c0ce5a4280d13a59f73da8c7e14e7b9e8964495259",
    ),
    (
        Kind::AesCbc,
        16,
        "6465666768696a6b6c6d6e6f7071727384dae64f6f36421d0828c8a3d20c4f270b79e55b29cd01030c54173baa586fae2f22062ff3c3262879365bd433a5fd22",
    ),
    (
        Kind::AesCbc,
        24,
        "6465666768696a6b6c6d6e6f7071727352efc26e767f4d8852369f65ebadc68cc04a1cad1128fb2d7f5d7d43585c19ab72169d741b3debeacc3242a6fc7ac8a0",
    ),
    (
        Kind::AesCbc,
        32,
        "6465666768696a6b6c6d6e6f7071727344283a8a80a45cba29966b60a5c5bdab0a78efa12041364b431e2ab474ab717b25288dc0708fc41a190a3cc5e339f571",
    ),
    (
        Kind::Secretbox,
        32,
        "6465666768696a6b6c6d6e6f707172737475767778797a7b5a265e686faa74f2f6e156b4a67b5e76799bf2a054d2ecd392ae46f745e1d73a12885cc690c76921dd2e32b630a9a8c0fe1a905f194ed683c82b351f7d",
    ),
];

fn cipher(kind: Kind, n_bytes: usize) -> Cipher {
    Cipher::new(kind, &(0..=255).take(n_bytes).collect::<Vec<u8>>()).unwrap()
}
fn counting() -> NonceSource {
    NonceSource::new(|bytes| {
        (100..).zip(bytes).for_each(|(n, byte)| *byte = n);
        Ok(())
    })
}
fn seeded(seed: u64) -> NonceSource {
    NonceSource::from_rng(StdRng::seed_from_u64(seed))
}

#[test]
fn values_have_the_layout_of_kubernetes() {
    for (kind, n_bytes, hex) in VECTORS {
        let sealed = cipher(kind, n_bytes).seal(b"k8s:", VALUE, PLACE, &counting()).unwrap();
        let text: String = sealed[4..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, hex, "{kind:?} {n_bytes}");
        assert_eq!(cipher(kind, n_bytes).open(&sealed[4..], PLACE).unwrap(), VALUE);
    }
}

#[test]
fn only_supported_lengths_make_a_key() {
    for kind in KINDS {
        for n_bytes in 0..70 {
            let is_one = kind.key_bytes().contains(&n_bytes);
            assert_eq!(
                Cipher::new(kind, &vec![7; n_bytes]).is_some(),
                is_one,
                "{kind:?} {n_bytes}"
            );
        }
    }
}

#[test]
fn without_randomness_nothing_is_encrypted() {
    let none = NonceSource::new(|_| Err(std::io::Error::other("none")));
    for kind in KINDS {
        cipher(kind, 32).seal(b"", VALUE, PLACE, &none).unwrap_err();
    }
}

#[test]
fn a_moved_value_is_not_decrypted() {
    let sealed = cipher(Kind::AesGcm, 32).seal(b"", VALUE, PLACE, &seeded(1)).unwrap();
    let moved = cipher(Kind::AesGcm, 32).open(&sealed, b"/registry/secrets/default/b");
    assert_eq!(moved, Err(OpenError::Forged));
}

#[test]
fn truncated_values_are_refused() {
    let cbc = cipher(Kind::AesCbc, 32);
    assert_eq!(cbc.open(&[0; 15], b""), Err(OpenError::Short));
    assert_eq!(cbc.open(&[0; 16], b""), Err(OpenError::Padding), "an empty text has no padding");
    assert_eq!(cbc.open(&[0; 33], b""), Err(OpenError::Blocks));
    for kind in [Kind::AesGcm, Kind::Secretbox] {
        assert_eq!(cipher(kind, 32).open(&[0; 20], b""), Err(OpenError::Short));
    }
}

proptest! {
    #[test]
    fn any_value_round_trips(
        value in proptest::collection::vec(any::<u8>(), 0..300),
        place in proptest::collection::vec(any::<u8>(), 0..40),
        secret in any::<[u8; 32]>(),
        seed: u64,
        cut: proptest::sample::Index,
        flip: proptest::sample::Index,
    ) {
        let nonces = seeded(seed);
        for kind in KINDS {
            for n_bytes in kind.key_bytes() {
                let cipher = Cipher::new(kind, &secret[..*n_bytes]).unwrap();
                let sealed = cipher.seal(b"", &value, &place, &nonces).unwrap();
                prop_assert_eq!(&cipher.open(&sealed, &place).unwrap(), &value);
                // Two encryptions of one value differ completely.
                let again = cipher.seal(b"", &value, &place, &nonces).unwrap();
                prop_assert_ne!(&again, &sealed);
                if kind == Kind::AesCbc {
                    continue;
                }
                let cut = &sealed[..cut.index(sealed.len())];
                prop_assert!(cipher.open(cut, &place).is_err());
                let mut flipped = sealed.clone();
                flipped[flip.index(sealed.len())] ^= 1;
                prop_assert_eq!(cipher.open(&flipped, &place), Err(OpenError::Forged));
                let mut other = secret;
                other[0] ^= 1;
                let other = Cipher::new(kind, &other[..*n_bytes]).unwrap();
                prop_assert_eq!(other.open(&sealed, &place), Err(OpenError::Forged));
            }
        }
    }

    #[test]
    fn any_bytes_are_decrypted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        for kind in KINDS {
            let _ = cipher(kind, 32).open(&bytes, b"place");
        }
    }
}

/// Measures speed: `cargo test -p setpoint-encryption --release -- --ignored --nocapture speed`.
#[test]
#[ignore = "a figure, not a check"]
#[allow(clippy::disallowed_methods, reason = "it measures")]
fn speed() {
    let nonces = seeded(1);
    for n_value in [1024, 64 * 1024] {
        let value = vec![7; n_value];
        let n = (256 << 20) / n_value;
        for (kind, n_bytes) in
            [(Kind::AesGcm, 16), (Kind::AesGcm, 32), (Kind::Secretbox, 32), (Kind::AesCbc, 32)]
        {
            let cipher = cipher(kind, n_bytes);
            let rate = |work: &dyn Fn()| {
                let started = std::time::Instant::now();
                (0..n).for_each(|_| work());
                let seconds = started.elapsed().as_secs_f64();
                (n * n_value) as f64 / seconds / 1e6
            };
            let sealed = cipher.seal(b"", &value, PLACE, &nonces).unwrap();
            let seal = rate(&|| drop(cipher.seal(b"", &value, PLACE, &nonces).unwrap()));
            let open = rate(&|| drop(cipher.open(&sealed, PLACE).unwrap()));
            println!(
                "{} {:3} bit, values of {n_value:6} B: seal {seal:6.0} MB/s, open {open:6.0} MB/s",
                kind.name(),
                n_bytes * 8
            );
        }
    }
}
