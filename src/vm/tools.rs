//! Where the set-up put things, and which kernel a run takes.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The programs that a VM needs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The set-up's cache, also the home of run directories and of what the KVM probe found.
    pub cache: PathBuf,
    pub virtme_run: PathBuf,
    pub virtiofsd_dir: PathBuf,
    pub qemu: PathBuf,
    /// The kernel that is taken without `--kernel`.
    pub kernel: PathBuf,
}

impl Tools {
    /// Reads the set-up's `env` file; the process's own environment wins.
    pub fn find() -> Result<Tools, Error> {
        let cache = cache_dir()?;
        let text = fs::read_to_string(cache.join("env")).unwrap_or_default();
        Tools::from_settings(cache, &parse_env(&text), |name| env::var(name).ok())
    }

    fn from_settings(
        cache: PathBuf,
        file: &HashMap<String, String>,
        process: impl Fn(&str) -> Option<String>,
    ) -> Result<Tools, Error> {
        let path = |name: &str| {
            let value = process(name).or_else(|| file.get(name).cloned());
            value.map(PathBuf::from).filter(|path| path.exists()).ok_or_else(|| not_set_up(name))
        };
        Ok(Tools {
            virtme_run: path("SCX_RETUNE_VNG_DIR")?.join("virtme-run"),
            virtiofsd_dir: path("SCX_RETUNE_VIRTIOFSD_DIR")?,
            qemu: path("SCX_RETUNE_QEMU")?,
            kernel: path("SCX_RETUNE_KERNEL")?,
            cache,
        })
    }
}

fn not_set_up(name: &str) -> Error {
    Error::environment(format!(
        "cannot start a VM: {name} is not set, or what it names is gone; run scripts/setup"
    ))
}

fn cache_dir() -> Result<PathBuf, Error> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("SCX_RETUNE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("scx_retune")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/scx_retune")))
        .ok_or_else(|| Error::environment("no cache: HOME is not set; set SCX_RETUNE_CACHE"))
}

/// `NAME='value'` lines, as scripts/setup writes them.
fn parse_env(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.trim_matches('\'').into()))
        .collect()
}

/// A kernel image and, where it lies in a usual place, its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    pub config: Option<PathBuf>,
}

impl Kernel {
    /// Takes an image, a directory that holds one, or the name of a kernel in the cache ("6.18").
    pub fn find(tools: &Tools, wanted: Option<&Path>) -> Result<Kernel, Error> {
        let Some(wanted) = wanted else { return Ok(Kernel::of_image(&tools.kernel)) };
        let cached = tools.cache.join("kernels").join(wanted);
        let place = if wanted.exists() { wanted } else { &cached };
        let image = find_image(place).ok_or_else(|| {
            Error::usage(format!(
                "kernel {}: no such image, and no directory that holds one; give a vmlinuz, an \
                 unpacked package, a build directory, or fetch one: scripts/setup --kernel 6.18",
                wanted.display()
            ))
        })?;
        Ok(Kernel::of_image(&image))
    }

    fn of_image(image: &Path) -> Kernel {
        let image = fs::canonicalize(image).unwrap_or_else(|_| image.into());
        let config = find_config(&image);
        Kernel { image, config }
    }
}

fn find_image(place: &Path) -> Option<PathBuf> {
    if place.is_file() {
        return Some(place.into());
    }
    let fixed = ["vmlinuz", "arch/x86/boot/bzImage"].map(|name| place.join(name));
    let modules = children(&place.join("usr/lib/modules")).map(|dir| dir.join("vmlinuz"));
    let boot = children(&place.join("boot")).filter(|file| named(file, "vmlinuz-"));
    fixed.into_iter().chain(modules).chain(boot).find(|image| image.is_file())
}

/// The configuration beside the image: `config`, `config-V` for `vmlinuz-V`, or a build's `.config`.
fn find_config(image: &Path) -> Option<PathBuf> {
    let dir = image.parent()?;
    let name = image.file_name()?.to_str()?;
    let release = name.strip_prefix("vmlinuz-").unwrap_or_default();
    ["config".into(), format!("config-{release}"), "../../../.config".into()]
        .into_iter()
        .map(|name| dir.join(name))
        .find(|config| config.is_file())
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn named(file: &Path, prefix: &str) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processs_environment_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().to_str().unwrap();
        let names = ["VNG_DIR", "VIRTIOFSD_DIR", "QEMU", "KERNEL"];
        let text: String = names.map(|name| format!("SCX_RETUNE_{name}='{here}'\n")).concat();
        let tools = Tools::from_settings("/cache".into(), &parse_env(&text), |name| {
            (name == "SCX_RETUNE_QEMU").then(|| "/bin".into())
        })
        .unwrap();
        assert_eq!(tools.qemu, Path::new("/bin"));
        assert_eq!(tools.virtme_run, dir.path().join("virtme-run"));
    }

    #[test]
    fn without_a_set_up_the_error_says_to_run_it() {
        let error = Tools::from_settings("/cache".into(), &HashMap::new(), |_| None).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.message.contains("run scripts/setup"), "{error}");
    }

    #[test]
    fn an_unpacked_kernel_is_found_in_both_layouts() {
        for (image, config) in [
            ("usr/lib/modules/7.3.4/vmlinuz", "usr/lib/modules/7.3.4/config"),
            ("boot/vmlinuz-6.18.15", "boot/config-6.18.15"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for file in [image, config] {
                fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
                fs::write(dir.path().join(file), "").unwrap();
            }
            let kernel = Kernel::of_image(&find_image(dir.path()).unwrap());
            assert!(kernel.image.ends_with(image));
            assert!(kernel.config.unwrap().ends_with(config));
        }
    }
}
