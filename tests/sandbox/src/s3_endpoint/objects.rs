//! The stored objects and the uploads under way.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};

/// One object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) body: Bytes,
    pub(super) etag: String,
    pub(super) modified: SystemTime,
}

#[derive(Debug, Default)]
struct Upload {
    bucket: String,
    key: String,
    parts: BTreeMap<u32, Bytes>,
}

/// All buckets.
#[derive(Debug, Default)]
pub(super) struct Objects {
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    uploads: BTreeMap<String, Upload>,
    next: u64,
}

/// One page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<(String, Object)>,
    pub(super) prefixes: Vec<String>,
    /// Key after which the next page begins.
    pub(super) next: Option<String>,
}

impl Objects {
    fn tag(&mut self) -> String {
        self.next += 1;
        format!("{:032x}", self.next)
    }

    pub(super) fn put(&mut self, bucket: &str, key: &str, body: Bytes) -> String {
        let etag = self.tag();
        let object = Object { body, etag: etag.clone(), modified: SystemTime::now() };
        self.buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), object);
        etag
    }

    pub(super) fn has_bucket(&self, bucket: &str) -> bool {
        self.buckets.contains_key(bucket)
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Option<&Object> {
        self.buckets.get(bucket)?.get(key)
    }

    pub(super) fn delete(&mut self, bucket: &str, key: &str) {
        if let Some(objects) = self.buckets.get_mut(bucket) {
            objects.remove(key);
        }
    }

    pub(super) fn keys(&self, bucket: &str) -> Vec<String> {
        self.buckets.get(bucket).map(|objects| objects.keys().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }

    /// Keys with `prefix` behind `after`, those that share a part up to `delimiter` folded into one prefix.
    pub(super) fn list(&self, bucket: &str, prefix: &str, delimiter: &str, after: &str, limit: usize) -> Page {
        let mut page = Page::default();
        let Some(objects) = self.buckets.get(bucket) else { return page };
        let mut last: Option<&str> = None;
        for (key, object) in objects {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            if key.as_str() <= after {
                continue;
            }
            let folded = (!delimiter.is_empty())
                .then(|| rest.find(delimiter).map(|at| &key[..prefix.len() + at + delimiter.len()]))
                .flatten();
            // A prefix that the page before has already told.
            if folded.is_some_and(|folded| {
                page.prefixes.last().map(String::as_str) == Some(folded) || after.starts_with(folded)
            }) {
                last = Some(key);
                continue;
            }
            if page.objects.len() + page.prefixes.len() == limit {
                page.next = last.map(str::to_owned);
                return page;
            }
            match folded {
                Some(folded) => page.prefixes.push(folded.to_owned()),
                None => page.objects.push((key.clone(), object.clone())),
            }
            last = Some(key);
        }
        page
    }

    pub(super) fn begin_upload(&mut self, bucket: &str, key: &str) -> String {
        let id = self.tag();
        let upload = Upload { bucket: bucket.to_owned(), key: key.to_owned(), parts: BTreeMap::new() };
        self.uploads.insert(id.clone(), upload);
        id
    }

    /// Stores a part; `None` when there is no such upload.
    pub(super) fn put_part(&mut self, id: &str, number: u32, body: Bytes) -> Option<String> {
        let etag = self.tag();
        self.uploads.get_mut(id)?.parts.insert(number, body);
        Some(etag)
    }

    /// Joins the listed parts to an object; `None` when the upload or a part is not there.
    pub(super) fn complete_upload(&mut self, id: &str, parts: &[u32]) -> Option<String> {
        let upload = self.uploads.get(id)?;
        let mut body = BytesMut::new();
        for number in parts {
            body.extend_from_slice(upload.parts.get(number)?);
        }
        let upload = self.uploads.remove(id)?;
        Some(self.put(&upload.bucket, &upload.key, body.freeze()))
    }

    pub(super) fn abort_upload(&mut self, id: &str) -> bool {
        self.uploads.remove(id).is_some()
    }
}
