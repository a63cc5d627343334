//! Public keys as SubjectPublicKeyInfo (RFC 5280) in DER.

/// `AlgorithmIdentifier`s, complete.
const P256: &[u8] =
    b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
const P384: &[u8] = b"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22";
const P521: &[u8] = b"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23";
const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// A point on P-256, uncompressed.
pub(super) fn p256(point: &[u8]) -> Vec<u8> {
    info(P256, point)
}

/// A point on P-384, uncompressed.
pub(super) fn p384(point: &[u8]) -> Vec<u8> {
    info(P384, point)
}

/// A point on P-521, uncompressed.
pub(super) fn p521(point: &[u8]) -> Vec<u8> {
    info(P521, point)
}

/// An RSA key in PKCS #1.
pub(super) fn rsa(key: &[u8]) -> Vec<u8> {
    info(RSA, key)
}

fn info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    // The first byte says that no bits of the last one are unused.
    let bits = element(BIT_STRING, &[&[0], key]);
    element(SEQUENCE, &[algorithm, &bits])
}

/// An element with its parts joined.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let n_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let mut der = vec![tag];
    match u8::try_from(n_bytes) {
        Ok(short @ ..0x80) => der.push(short),
        _ => {
            let length = n_bytes.to_be_bytes();
            let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            der.push(0x80 | length.len() as u8);
            der.extend(length);
        }
    }
    for part in parts {
        der.extend_from_slice(part);
    }
    der
}
