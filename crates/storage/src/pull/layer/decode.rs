//! Decompression, with a limit on what comes out.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// zstd's own default for what a decoder must be ready to remember. Larger windows are for archives, not for images.
const MAX_WINDOW: u64 = 128 << 20;

/// The layer's archive, whatever it is compressed with. Its first bytes decide, since media types are often wrong.
pub(in crate::pull) fn reader<'a>(stored: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stored = BufReader::with_capacity(64 << 10, stored);
    Ok(match stored.fill_buf()? {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(stored)),
        // A frame, or one to skip: zstd's seekable forms may begin with such.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd::new(stored)),
        _ => Box::new(stored),
    })
}

/// All frames of a zstd stream, one after the other.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { source, decoder, in_frame: false }
    }

    /// Begins the next frame, if there is one.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.in_frame && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.in_frame && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                continue;
            }
            self.in_frame = self.begin()?;
            if !self.in_frame {
                return Ok(0);
            }
        }
    }
}

/// Counts what is read, and fails beyond a limit.
pub(in crate::pull) struct Limited<R> {
    reader: R,
    limit: u64,
    count: u64,
    is_exhausted: bool,
}

impl<R: Read> Limited<R> {
    pub(in crate::pull) fn new(reader: R, limit: u64) -> Self {
        Self { reader, limit, count: 0, is_exhausted: false }
    }

    pub(in crate::pull) fn count(&self) -> u64 {
        self.count
    }

    pub(in crate::pull) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count += count as u64;
        if self.count > self.limit {
            self.is_exhausted = true;
            return Err(io::Error::other("the limit on unpacked bytes is reached"));
        }
        Ok(count)
    }
}
