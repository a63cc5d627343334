//! `Audit-Id`: returns the request's id unchanged, or makes one if it has none or a very long one.

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

/// The header.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("audit-id");

/// Maximum bytes of an id of a client. It is kept with every event of the request, and clients of
/// the original send UUIDs of 36 bytes.
const BYTES_MAX: usize = 256;

/// The audit id of a request.
pub(crate) fn of(headers: &HeaderMap, rng: &Mutex<SmallRng>) -> HeaderValue {
    if let Some(id) = headers.get(HEADER).filter(|id| (1..=BYTES_MAX).contains(&id.len())) {
        return id.clone();
    }
    let random: u128 = rng.lock().random();
    // Version 4, variant 1 of RFC 9562.
    let id = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let mut text = [b'-'; 36];
    let mut left = id;
    // From the last digit to the first, skipping the hyphens.
    for (at, place) in text.iter_mut().enumerate().rev() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            *place = b"0123456789abcdef"[(left & 0xf) as usize];
            left >>= 4;
        }
    }
    let mut id = HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    // It is unique: do not add it to the connection's header table.
    id.set_sensitive(true);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn generated_ids_are_version_4_uuids() {
        let rng = Mutex::new(SmallRng::seed_from_u64(1));
        let id = of(&HeaderMap::new(), &rng);
        let id = id.to_str().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]), "{id}");
        let hyphens: Vec<_> = id.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!(hyphens, [8, 13, 18, 23]);
        let of_text = |text: &str| {
            of(&HeaderMap::from_iter([(HEADER, HeaderValue::from_str(text).unwrap())]), &rng)
        };
        assert_eq!(of_text("a"), "a");
        let longest = "x".repeat(BYTES_MAX);
        assert_eq!(of_text(&longest), longest);
        assert_eq!(of_text(&format!("{longest}x")).len(), 36, "it would fill the queue of events");
        assert_eq!(of_text("").len(), 36, "an empty one is none");
    }
}
