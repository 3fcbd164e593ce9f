//! Compressed bodies.

use std::io::{self, BufReader, Read};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::header::Compression;
use super::input::BodyReader;

/// Bytes read ahead of a decoder.
const READ_SIZE: usize = 128 * 1024;
/// Largest block of `lz4_block` (decompressed, and compressed).
const MAX_BLOCK: usize = 64 * 1024 * 1024;

/// The plain bytes of a body.
pub(super) fn reader(body: BodyReader, compression: Compression) -> io::Result<Box<dyn Read>> {
    if compression == Compression::Plain {
        return Ok(Box::new(body));
    }
    decoder(BufReader::with_capacity(READ_SIZE, body), compression)
}

fn decoder<R: Read + 'static>(input: BufReader<R>, compression: Compression) -> io::Result<Box<dyn Read>> {
    Ok(match compression {
        Compression::Plain => Box::new(input),
        Compression::Gzip => Box::new(MultiGzDecoder::new(input)),
        // With the head of zlib, as a BE opens it.
        Compression::Deflate => Box::new(ZlibDecoder::new(input)),
        Compression::Lz4Frame => Box::new(Frames { decoder: lz4_flex::frame::FrameDecoder::new(input) }),
        Compression::Lz4Block => Box::new(Blocks { input, left: 0, plain: Vec::new(), at: 0 }),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
    })
}

/// LZ4 frames one after another: the decoder stops after each.
struct Frames<R: Read> {
    decoder: lz4_flex::frame::FrameDecoder<BufReader<R>>,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.decoder.read(buffer)?;
            if n > 0 || buffer.is_empty() || io::BufRead::fill_buf(self.decoder.get_mut())?.is_empty() {
                return Ok(n);
            }
        }
    }
}

/// Hadoop's framing: the length of a block when it is plain, then pieces with their compressed lengths until that much
/// is there; all lengths are four bytes, big-endian.
struct Blocks<R> {
    input: R,
    /// Plain bytes of the current block that no piece has brought yet.
    left: usize,
    plain: Vec<u8>,
    at: usize,
}

impl<R: Read> Blocks<R> {
    /// A length; `None` at the end of the input before its first byte.
    fn length(&mut self) -> io::Result<Option<usize>> {
        let mut bytes = [0; 4];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let length = u32::from_be_bytes(bytes) as usize;
        if length > MAX_BLOCK {
            return Err(broken("a block is larger than 64 MiB"));
        }
        Ok(Some(length))
    }

    /// Makes the next piece available; false at the end of the input.
    fn piece(&mut self) -> io::Result<bool> {
        while self.left == 0 {
            match self.length()? {
                Some(length) => self.left = length,
                None => return Ok(false),
            }
        }
        let length = self.length()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut compressed = vec![0; length];
        self.input.read_exact(&mut compressed)?;
        self.plain.resize(self.left, 0);
        let n = lz4_flex::block::decompress_into(&compressed, &mut self.plain).map_err(|e| broken(&e.to_string()))?;
        if n == 0 {
            return Err(broken("an empty piece in a block"));
        }
        self.plain.truncate(n);
        self.left -= n;
        self.at = 0;
        Ok(true)
    }
}

impl<R: Read> Read for Blocks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.plain.len() {
            if buffer.is_empty() || !self.piece()? {
                return Ok(0);
            }
        }
        let n = buffer.len().min(self.plain.len() - self.at);
        buffer[..n].copy_from_slice(&self.plain[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn broken(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text() -> Vec<u8> {
        (0..20_000).flat_map(|i| format!("{i},value {}\n", i % 7).into_bytes()).collect()
    }

    fn blocks(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for block in plain.chunks(50_000) {
            out.extend((block.len() as u32).to_be_bytes());
            for piece in block.chunks(20_000) {
                let compressed = lz4_flex::block::compress(piece);
                out.extend((compressed.len() as u32).to_be_bytes());
                out.extend(compressed);
            }
        }
        out
    }

    fn lz4(plain: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(plain).expect("lz4");
        encoder.finish().expect("lz4")
    }

    fn compressed(plain: &[u8], compression: Compression) -> Vec<u8> {
        match compression {
            Compression::Plain => plain.to_vec(),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(plain).expect("gzip");
                encoder.finish().expect("gzip")
            }
            Compression::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(plain).expect("deflate");
                encoder.finish().expect("deflate")
            }
            // Two frames, as a client that compresses piece by piece sends them.
            Compression::Lz4Frame => [lz4(&plain[..plain.len() / 2]), lz4(&plain[plain.len() / 2..])].concat(),
            Compression::Lz4Block => blocks(plain),
            Compression::Zstd => zstd::stream::encode_all(plain, 3).expect("zstd"),
        }
    }

    const ALL: [Compression; 6] = [
        Compression::Plain,
        Compression::Gzip,
        Compression::Deflate,
        Compression::Lz4Frame,
        Compression::Lz4Block,
        Compression::Zstd,
    ];

    fn read(bytes: Vec<u8>, compression: Compression) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoder(BufReader::new(io::Cursor::new(bytes)), compression)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn every_compression_is_read_back() {
        let plain = text();
        for compression in ALL {
            let read = read(compressed(&plain, compression), compression).expect("plain");
            assert!(read == plain, "{compression:?}");
        }
    }

    #[test]
    fn broken_bodies_are_errors() {
        let plain = text();
        for compression in &ALL[1..] {
            let mut bytes = compressed(&plain, *compression);
            bytes.truncate(bytes.len() - 9);
            assert!(read(bytes, *compression).is_err(), "{compression:?} cut short");
            assert!(
                read(b"this is no compressed text at all".to_vec(), *compression).is_err(),
                "{compression:?} plain"
            );
        }
    }
}
