//! Mutants of corpus inputs.

use rand::Rng;
use rand::rngs::SmallRng;

/// Maximum number of changes of one input.
const CHANGES_MAX: usize = 4;
/// Maximum length in bytes of a piece that is removed, doubled or inserted.
const PIECE_BYTES_MAX: usize = 64;
/// Tokens of the parsers.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    "\n",
    "null",
    "true",
    "-0",
    "1e9",
    "\\u0041",
    "\\ud800",
    "{}",
    "[]",
    "\"\"",
    "\"type\":",
    "\"object\":",
    "\"items\":",
    "\"metadata\":",
    "\"kind\":",
    "\u{e9}",
    "18446744073709551616",
];

/// Changes an input in one to four places; parts may come from another input.
pub(crate) fn mutant(input: &[u8], others: &[Vec<u8>], rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.random_range(1..=CHANGES_MAX) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len().min(at + PIECE_BYTES_MAX));
        match rng.random_range(0..7) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let piece = bytes[at..end].to_vec();
                insert(&mut bytes, at, &piece);
            }
            2 => {
                let token = TOKENS[rng.random_range(0..TOKENS.len())];
                insert(&mut bytes, at, token.as_bytes());
            }
            3 => {
                let other = &others[rng.random_range(0..others.len())];
                let from = rng.random_range(0..=other.len());
                let to = rng.random_range(from..=other.len().min(from + PIECE_BYTES_MAX));
                insert(&mut bytes, at, &other[from..to]);
            }
            4 => insert(&mut bytes, at, &[rng.random()]),
            5 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << rng.random_range(0..8)),
            _ => bytes.truncate(at.max(2)),
        }
    }
    bytes
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}
