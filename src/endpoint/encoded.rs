//! Did the encode workers get the picture of a request? The answer is the same if they did not: the worker that answers encodes it itself.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::known::{TestResult, Verdict};

/// Pixels of its sides.
const SIDE: u32 = 128;
pub const QUESTION: &str = "Describe this picture in one sentence.";

/// What came to all encode workers, since they were started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Taken {
    pub requests: f64,
    pub bytes: f64,
}

/// What one picture brought them.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    pub before: Taken,
    pub after: Taken,
    /// Of the picture as the request has it.
    pub bytes: usize,
    pub seconds: f64,
}

/// A picture that no worker has in its cache, as a `data:` address: what is known already is encoded by nobody.
pub fn picture(nonce: &str) -> anyhow::Result<String> {
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut colours = nonce.bytes().cycle();
    for _ in 0..SIDE {
        // No filter, and three bytes a pixel.
        let row: Vec<u8> = std::iter::once(0).chain(colours.by_ref().take(3 * SIDE as usize)).collect();
        pixels.write_all(&row)?;
    }
    let mut header = [SIDE.to_be_bytes(), SIDE.to_be_bytes()].concat();
    // Eight bits of red, green and blue; the one compression, filter and order that there is.
    header.extend([8, 2, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, body) in [(b"IHDR", header), (b"IDAT", pixels.finish()?), (b"IEND", Vec::new())] {
        let mut sum = Crc::new();
        sum.update(kind);
        sum.update(&body);
        png.extend((body.len() as u32).to_be_bytes());
        png.extend(kind);
        png.extend(body);
        png.extend(sum.sum().to_be_bytes());
    }
    Ok(format!("data:image/png;base64,{}", STANDARD.encode(png)))
}

impl Encoded {
    fn requests(&self) -> f64 {
        self.after.requests - self.before.requests
    }

    fn brought(&self) -> f64 {
        self.after.bytes - self.before.bytes
    }

    /// Has the picture come?
    pub fn has_come(&self) -> bool {
        self.requests() >= 1.0 && self.brought() >= self.bytes as f64
    }

    /// The test, with what was counted.
    pub fn result(&self) -> TestResult {
        let mut got = format!("{} requests with {:.0} bytes to the encode workers", self.requests(), self.brought());
        if !self.has_come() {
            got += ": the worker that answered encoded the picture itself, and the encode workers' GPUs are idle";
        }
        TestResult {
            id: "picture-encoded".into(),
            asked: "about a picture".into(),
            expected: format!("a request with its {} bytes to an encode worker", self.bytes),
            got,
            verdict: if self.has_come() { Verdict::Passed } else { Verdict::Wrong },
            seconds: self.seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn no_two_pictures_are_alike_and_each_is_whole() {
        let (one, other) = (picture("2026-12-01T09:00:00Z").unwrap(), picture("2026-12-01T09:00:01Z").unwrap());
        assert_ne!(one, other);
        let png = STANDARD.decode(one.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        assert_eq!((&png[..8], &png[12..16], &png[16..24]), (&b"\x89PNG\r\n\x1a\n"[..], &b"IHDR"[..], &[0, 0, 0, 128, 0, 0, 0, 128][..]));
        let mut at = 8;
        let mut pixels = Vec::new();
        while at < png.len() {
            let end = at + 8 + u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
            let mut sum = Crc::new();
            sum.update(&png[at + 4..end]);
            assert_eq!(png[end..end + 4], sum.sum().to_be_bytes());
            if &png[at + 4..at + 8] == b"IDAT" {
                ZlibDecoder::new(&png[at + 8..end]).read_to_end(&mut pixels).unwrap();
            }
            at = end + 4;
        }
        assert_eq!(pixels.len(), 128 * (1 + 3 * 128));
    }

    #[test]
    fn a_picture_has_come_if_it_was_asked_about_and_sent() {
        let before = Taken { requests: 7.0, bytes: 9000.0 };
        for (requests, bytes, verdict, words) in [
            (8.0, 11_500.0, Verdict::Passed, "1 requests with 2500 bytes to the encode workers"),
            (7.0, 9000.0, Verdict::Wrong, "0 requests with 0 bytes to the encode workers: the worker that answered encoded the picture itself"),
            (8.0, 9100.0, Verdict::Wrong, "1 requests with 100 bytes to the encode workers: the worker"),
        ] {
            let result = Encoded { before, after: Taken { requests, bytes }, bytes: 2000, seconds: 1.0 }.result();
            assert_eq!(result.verdict, verdict, "{result}");
            assert!(result.got.starts_with(words), "{}", result.got);
        }
    }
}
