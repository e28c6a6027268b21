//! Was a picture encoded by the workers that are there for it? The answers are the same if it was not: an engine that finds no encoded picture encodes it itself.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::known::{TestResult, Verdict};

/// What is asked of the picture. The answer is shown and not judged: it is the same whoever encoded.
pub const QUESTION: &str = "Which colour has this picture? Answer with one word.";
/// Pixels of a side: one tile of any encoder.
const SIDE: u16 = 512;
/// Of the large one.
const LARGE: u16 = 1024;

/// A red picture (PNG) that nobody has sent before: what an encoder has in its cache it does not encode again. The eight bytes are eight pixels in its corner.
pub fn picture(nonce: u64) -> std::io::Result<Vec<u8>> {
    let mut pixels = Vec::with_capacity(usize::from(SIDE) * (usize::from(SIDE) * 3 + 1));
    for row in 0..SIDE {
        // The row's filter: none.
        pixels.push(0);
        for column in 0..SIDE {
            let shade = if row == 0 { nonce.to_be_bytes().get(usize::from(column)).copied().unwrap_or(0) / 4 } else { 0 };
            pixels.extend([220, shade, shade]);
        }
    }
    png(SIDE, &pixels)
}

/// A red picture of more than 1 MB, as a photograph has: shades that no method packs. What carries requests may have a limit there (story 88).
pub fn large_picture(nonce: u64) -> std::io::Result<Vec<u8>> {
    let mut pixels = Vec::with_capacity(usize::from(LARGE) * (usize::from(LARGE) * 3 + 1));
    // A linear congruential generator (Knuth, MMIX): noise for a picture, and nothing else.
    let mut noise = nonce;
    let mut row = vec![0; usize::from(LARGE) * 3 + 1];
    for _ in 0..LARGE {
        for pixel in row[1..].chunks_exact_mut(3) {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [a, b, c, ..] = noise.to_be_bytes();
            pixel.copy_from_slice(&[200 + a / 8, b / 4, c / 4]);
        }
        pixels.extend_from_slice(&row);
    }
    png(LARGE, &pixels)
}

/// A square picture of these rows, each with its filter's byte before it.
fn png(side: u16, rows: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(rows)?;
    let mut header = [u32::from(side).to_be_bytes(), u32::from(side).to_be_bytes()].concat();
    // Eight bits of red, green and blue each; the only methods there are; not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", packed.finish()?), (b"IEND", Vec::new())] {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(&data);
        png.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
        png.extend(kind);
        png.extend(data);
        png.extend(crc.sum().to_be_bytes());
    }
    Ok(png)
}

/// What one picture came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// Requests that the encode workers have finished, since they were started.
    pub before: f64,
    pub after: f64,
    /// What the model said of the picture.
    pub answer: String,
    pub seconds: f64,
}

impl Encoded {
    /// Has an encode worker had the picture?
    pub fn by_them(&self) -> bool {
        self.after > self.before
    }

    /// The test, with what was counted.
    pub fn result(&self) -> TestResult {
        let mut got = format!("{:?}, and the encode workers finished {} requests", self.answer, self.after - self.before);
        if !self.by_them() {
            got += ": the engine that answers encoded the picture itself, and the encode workers do nothing";
        }
        TestResult {
            id: "picture-encoded".into(),
            asked: format!("{QUESTION:?} of a red picture"),
            expected: "an answer, and a request more at the encode workers".into(),
            got,
            verdict: if self.by_them() { Verdict::Passed } else { Verdict::Wrong },
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
    fn no_two_pictures_are_alike_and_all_are_red() {
        let (one, other) = (picture(1).unwrap(), picture(u64::MAX).unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\0\0\0\x02\0\x08\x02\0\0\0"));
        assert!(one.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"), "the checksum that every PNG ends with");
        let data = one.windows(4).position(|word| word == b"IDAT").unwrap() + 4;
        let mut pixels = Vec::new();
        ZlibDecoder::new(&one[data..]).read_to_end(&mut pixels).unwrap();
        assert_eq!(pixels.len(), 512 * (512 * 3 + 1));
        assert!(pixels.chunks(512 * 3 + 1).all(|row| row[0] == 0 && row[1..].chunks(3).all(|pixel| pixel[0] == 220 && pixel[1] < 64 && pixel[2] < 64)));
    }

    #[test]
    fn a_large_one_is_larger_than_a_megabyte() {
        let png = large_picture(7).unwrap();
        assert!((1_200_000..4_000_000).contains(&png.len()), "{}", png.len());
        assert_ne!(png, large_picture(8).unwrap());
    }

    #[test]
    fn a_right_answer_is_not_enough() {
        let result = |answer: &str, after: f64| Encoded { before: 7.0, after, answer: answer.into(), seconds: 1.0 }.result();
        assert_eq!(result("Red.", 8.0).verdict, Verdict::Passed);
        assert_eq!(result("red", 8.0).got, "\"red\", and the encode workers finished 1 requests");
        let told = result("red", 7.0);
        assert_eq!(told.verdict, Verdict::Wrong);
        assert!(told.to_string().contains("finished 0 requests: the engine that answers encoded the picture itself"), "{told}");
    }
}
