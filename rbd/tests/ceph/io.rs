//! Images for one test, and waiting for asynchronous I/O.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::mpsc;

use rbd::{Bytes, Compared, Errno, Image, NewImage, Open};

use crate::bench::{PATIENCE, pool, unique};

/// A new image, open for writing.
pub(crate) fn image(what: &str, size: u64) -> Image {
    image_with(what, NewImage::new(size))
}

pub(crate) fn image_with(what: &str, new: NewImage) -> Image {
    let (pool, name) = (pool(), unique(what));
    pool.create_image(&name, new).unwrap();
    pool.open_image(&name, &Open::default()).unwrap()
}

/// The part of a label after the pool.
pub(crate) fn name_of(image: &Image) -> String {
    image.label().rsplit('/').next().unwrap().to_owned()
}

/// The same image through another client.
pub(crate) fn again(image: &Image) -> Image {
    pool().open_image(&name_of(image), &Open::default()).unwrap()
}

/// Starts an operation and waits for its end.
pub(crate) fn wait<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let (tell, told) = mpsc::channel();
    start(Box::new(move |result| tell.send(result).unwrap()));
    told.recv_timeout(PATIENCE).expect("the operation does not end")
}

pub(crate) fn read(image: &Image, offset: u64, len: usize) -> (Result<usize, Errno>, Vec<u8>) {
    // A pattern that no test writes, so that bytes that were not read show.
    let buffer = Bytes::from(vec![0xEE; len]);
    wait(|done| image.read(offset, buffer, move |result, buffer: Bytes| done((result, buffer.into_vec()))))
}

pub(crate) fn read_ok(image: &Image, offset: u64, len: usize) -> Vec<u8> {
    let (result, data) = read(image, offset, len);
    assert_eq!(result, Ok(len));
    data
}

pub(crate) fn write(image: &Image, offset: u64, data: Vec<u8>) -> Result<(), Errno> {
    wait(|done| image.write(offset, Bytes::from(data), move |result, _buffer| done(result)))
}

pub(crate) fn discard(image: &Image, offset: u64, len: u64) -> Result<(), Errno> {
    wait(|done| image.discard(offset, len, done))
}

pub(crate) fn write_zeroes(image: &Image, offset: u64, len: u64, thick: bool) -> Result<(), Errno> {
    wait(|done| image.write_zeroes(offset, len, thick, done))
}

pub(crate) fn write_same(image: &Image, offset: u64, len: u64, pattern: Vec<u8>) -> Result<(), Errno> {
    wait(|done| image.write_same(offset, len, pattern, move |result, _pattern| done(result)))
}

pub(crate) fn compare_and_write(
    image: &Image,
    offset: u64,
    expected: Vec<u8>,
    new: Vec<u8>,
) -> Result<Compared, Errno> {
    wait(|done| image.compare_and_write(offset, expected, new, done))
}

pub(crate) fn flush(image: &Image) -> Result<(), Errno> {
    wait(|done| image.flush(done))
}
