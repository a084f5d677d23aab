//! The machines in tests/data/topologies, unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A captured machine; its files go away with it.
pub struct Captured {
    pub shape: String,
    dir: TempDir,
}

impl Captured {
    pub fn unpack(shape: &str) -> Captured {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let archive = archives().join(format!("{shape}.tar.xz"));
        let status =
            Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(dir.path()).status();
        assert!(status.expect("tar runs").success(), "tar cannot unpack {}", archive.display());
        Captured { shape: shape.to_string(), dir }
    }

    /// Every captured machine, in the order of their names.
    pub fn all() -> impl Iterator<Item = Captured> {
        let names = fs::read_dir(archives()).expect("the captured machines").flatten();
        let mut shapes: Vec<String> = names
            .filter_map(|entry| {
                entry.file_name().to_str()?.strip_suffix(".tar.xz").map(str::to_string)
            })
            .collect();
        shapes.sort_unstable();
        assert_eq!(shapes.len(), 22, "captured machines");
        shapes.into_iter().map(|shape| Captured::unpack(&shape))
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join(&self.shape)
    }

    /// What the kernel built: the `cpus` of kernel-domains.json.
    pub fn kernel_domains(&self) -> serde_json::Map<String, Value> {
        let text = fs::read_to_string(self.root().join("kernel-domains.json"))
            .expect("kernel-domains.json");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        json["cpus"].as_object().expect("an object of CPUs").clone()
    }

    /// Replaces the text of a file (read-only in the archive).
    pub fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        fs::remove_file(&path).expect("the file to replace");
        fs::write(path, text).expect("the new text");
    }

    pub fn remove(&self, file: &str) {
        fs::remove_file(self.root().join(file)).expect("the file to remove");
    }

    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).expect("the file")
    }
}

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/topologies")
}
