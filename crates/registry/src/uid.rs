//! Random UUIDs, of objects and of reviews that are sent to webhooks.
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

/// Characters of a UUID.
pub(crate) const UID_BYTES: usize = 36;

/// A random (version 4) UUID from a seeded generator.
pub(crate) fn uid(rng: &Mutex<SmallRng>) -> String {
    uid_bytes(rng).map(char::from).iter().collect()
}

/// The same, as ASCII characters.
pub(crate) fn uid_bytes(rng: &Mutex<SmallRng>) -> [u8; UID_BYTES] {
    let mut bytes: [u8; 16] = rng.lock().random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = [b'-'; UID_BYTES];
    // The groups of a UUID, with a dash between two.
    let places = (0..8).chain(9..13).chain(14..18).chain(19..23).chain(24..UID_BYTES);
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, nibble) in places.zip(nibbles) {
        text[place] = b"0123456789abcdef"[usize::from(nibble)];
    }
    text
}
