//! Decodes gzip as it arrives.
use super::SourceError;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures::{Stream, StreamExt, stream};
use std::io::Write;

/// How much of a compressed chunk is decoded at once: 4 KiB, which decode to at most 4 MiB.
const PIECE_BYTES: usize = 4 << 10;

/// Decodes a body chunk by chunk. Ends after its first error: bytes that are not gzip, a truncated
/// body, or a decoded size over `bytes_max` ([`SourceError::TooLarge`]).
pub(super) fn decoded(
    chunks: impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static,
    bytes_max: u64,
) -> impl Stream<Item = Result<Bytes, SourceError>> + Send {
    let gzip = Gzip { decoder: MultiGzDecoder::new(Vec::new()), left: bytes_max, bytes_max };
    let state = Some((Box::pin(chunks), gzip, Bytes::new()));
    stream::unfold(state, |state| async move {
        let (mut chunks, mut gzip, mut rest) = state?;
        loop {
            if rest.is_empty() {
                rest = match chunks.next().await {
                    Some(Ok(chunk)) => chunk,
                    Some(Err(error)) => return Some((Err(error), None)),
                    None => {
                        return match gzip.finish() {
                            Ok(out) if out.is_empty() => None,
                            out => Some((out, None)),
                        };
                    }
                };
            }
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            match gzip.take(&piece) {
                Ok(out) if out.is_empty() => tokio::task::coop::consume_budget().await,
                Ok(out) => return Some((Ok(out), Some((chunks, gzip, rest)))),
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
}

struct Gzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// How many decoded bytes are still allowed.
    left: u64,
    bytes_max: u64,
}

impl Gzip {
    fn take(&mut self, piece: &[u8]) -> Result<Bytes, SourceError> {
        self.decoder.write_all(piece).map_err(malformed)?;
        self.out()
    }

    fn finish(&mut self) -> Result<Bytes, SourceError> {
        self.decoder.try_finish().map_err(malformed)?;
        self.out()
    }

    /// The bytes decoded since the last call.
    fn out(&mut self) -> Result<Bytes, SourceError> {
        let out = std::mem::take(self.decoder.get_mut());
        match self.left.checked_sub(out.len() as u64) {
            Some(left) => {
                self.left = left;
                Ok(out.into())
            }
            None => Err(SourceError::TooLarge {
                what: "compressed list",
                bytes_max: usize::try_from(self.bytes_max).unwrap_or(usize::MAX),
            }),
        }
    }
}

fn malformed(error: std::io::Error) -> SourceError {
    SourceError::protocol(format!("not gzip: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::pin::pin;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    async fn decode(
        body: &[u8],
        chunk_bytes: usize,
        bytes_max: u64,
    ) -> Result<Vec<u8>, SourceError> {
        let chunks: Vec<_> =
            body.chunks(chunk_bytes).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let mut decoded = pin!(decoded(stream::iter(chunks), bytes_max));
        let mut text = Vec::new();
        while let Some(part) = decoded.next().await {
            text.extend_from_slice(&part?);
        }
        Ok(text)
    }

    #[tokio::test]
    async fn body_is_decoded_in_chunks_of_any_size() {
        let text: Vec<u8> =
            (0..100_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let body = gzip(&text);
        for chunk_bytes in [1, 7, 4096, 1 << 20] {
            assert_eq!(decode(&body, chunk_bytes, 1 << 20).await.unwrap(), text);
        }
        let both = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(decode(&both, 5, 100).await.unwrap(), b"one two");
    }

    #[tokio::test]
    async fn compression_bomb_is_rejected_at_the_size_limit() {
        let bomb = gzip(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 400_000, "{}", bomb.len());
        let error = decode(&bomb, 1 << 20, 1 << 20).await.unwrap_err();
        assert_eq!(error.to_string(), "the compressed list is larger than 1048576 bytes");
    }

    #[tokio::test]
    async fn truncated_body_or_other_encoding_is_an_error() {
        let body = gzip(b"some text that is long enough");
        for end in [5, body.len() / 2, body.len() - 1] {
            let error = decode(&body[..end], 100, 1000).await.unwrap_err();
            assert!(matches!(error, SourceError::Protocol { .. }), "{error}");
        }
        assert!(decode(b"{\"kind\":\"PodList\"}", 100, 1000).await.is_err());
    }
}
