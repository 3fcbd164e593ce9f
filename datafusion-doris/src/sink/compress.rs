//! The compression of a body, piece by piece.

use std::fmt;
use std::io::{self, Write};

use flate2::write::{GzEncoder, ZlibEncoder};
use lz4_flex::frame::FrameEncoder;

use crate::options::Compression;

/// Takes plain bytes and collects compressed ones. Memory is that of one block and of what nobody took yet.
pub(super) enum Compressor {
    Gz(Box<GzEncoder<Vec<u8>>>),
    Deflate(Box<ZlibEncoder<Vec<u8>>>),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Compressor {
    /// `None` where nothing is compressed.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub(super) fn new(compression: Compression) -> io::Result<Option<Self>> {
        let fast = flate2::Compression::fast();
        Ok(Some(match compression {
            Compression::None => return Ok(None),
            Compression::Gz => Self::Gz(Box::new(GzEncoder::new(Vec::new(), fast))),
            Compression::Deflate => Self::Deflate(Box::new(ZlibEncoder::new(Vec::new(), fast))),
            Compression::Lz4 => Self::Lz4(Box::new(FrameEncoder::new(Vec::new()))),
            Compression::Zstd => Self::Zstd(Box::new(zstd::stream::write::Encoder::new(Vec::new(), 1)?)),
        }))
    }

    /// Takes all of `plain`, which is empty afterwards and keeps its memory.
    ///
    /// # Errors
    /// When the compressor fails.
    pub(super) fn write(&mut self, plain: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Gz(encoder) => encoder.write_all(plain)?,
            Self::Deflate(encoder) => encoder.write_all(plain)?,
            Self::Lz4(encoder) => encoder.write_all(plain)?,
            Self::Zstd(encoder) => encoder.write_all(plain)?,
        }
        plain.clear();
        Ok(())
    }

    /// What is compressed and not taken yet.
    pub(super) fn ready(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gz(encoder) => encoder.get_mut(),
            Self::Deflate(encoder) => encoder.get_mut(),
            Self::Lz4(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }

    /// The rest, with the end of the compressed text.
    ///
    /// # Errors
    /// When the compressor fails.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gz(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
            Self::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gz(_) => "Gz",
            Self::Deflate(_) => "Deflate",
            Self::Lz4(_) => "Lz4",
            Self::Zstd(_) => "Zstd",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::io::Read;

    use super::*;

    fn plain_of(compression: Compression, body: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match compression {
            Compression::None => unreachable!("there is no compressor"),
            Compression::Gz => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap()),
            Compression::Deflate => drop(flate2::read::ZlibDecoder::new(body).read_to_end(&mut plain).unwrap()),
            Compression::Lz4 => drop(lz4_flex::frame::FrameDecoder::new(body).read_to_end(&mut plain).unwrap()),
            Compression::Zstd => plain = zstd::stream::decode_all(body).unwrap(),
        }
        plain
    }

    #[test]
    fn bytes_taken_piece_by_piece_are_one_stream() {
        assert!(Compressor::new(Compression::None).unwrap().is_none());
        for compression in [Compression::Gz, Compression::Deflate, Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(compression).unwrap().unwrap();
            let (mut expected, mut body) = (vec![], vec![]);
            for piece in 0..300u32 {
                let mut plain: Vec<u8> = (0..2000).map(|at| (piece * 7 + at / 3) as u8).collect();
                expected.extend_from_slice(&plain);
                compressor.write(&mut plain).unwrap();
                assert!(plain.is_empty());
                if piece % 50 == 0 {
                    body.append(compressor.ready());
                }
            }
            body.extend(compressor.finish().unwrap());
            assert!(body.len() < expected.len() / 3, "{compression:?}: {}", body.len());
            assert!(plain_of(compression, &body) == expected, "{compression:?}");
        }
    }

    #[test]
    fn a_body_without_bytes_is_whole() {
        for compression in [Compression::Gz, Compression::Deflate, Compression::Lz4, Compression::Zstd] {
            let body = Compressor::new(compression).unwrap().unwrap().finish().unwrap();
            assert!(plain_of(compression, &body).is_empty(), "{compression:?}");
        }
    }
}
