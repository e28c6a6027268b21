//! GPUs as NVML tells of them. The library is loaded at run time: a node without it is told of, and no reason to end.

use std::ffi::OsStr;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::node::{Driver, GpuProbe, GpuSample};

/// Links of a GPU that are looked at: NVML's own limit.
const NVLINKS: u32 = 18;
/// What holds the clocks down and is worth a word: what an idle GPU does is not.
const REASONS: &[(ThrottleReasons, &str)] = &[
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "too hot (driver)"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "too hot (hardware)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "clocks that somebody set"),
];

/// NVML, or why there is none.
pub(super) struct Gpus {
    nvml: Result<Nvml, String>,
    count: u32,
}

impl Gpus {
    /// Loads the library of this name, or at this path.
    pub(super) fn open(library: &OsStr) -> Self {
        let nvml = Nvml::builder().lib_path(library).init().map_err(|e| missing(library, &e));
        match nvml.and_then(|nvml| nvml.device_count().map(|count| (nvml, count)).map_err(|e| missing(library, &e))) {
            Ok((nvml, count)) => Self { nvml: Ok(nvml), count },
            Err(why) => Self { nvml: Err(why), count: 0 },
        }
    }

    pub(super) fn missing(&self) -> Option<String> {
        self.nvml.as_ref().err().cloned()
    }

    pub(super) fn driver(&self) -> Option<Driver> {
        let nvml = self.nvml.as_ref().ok()?;
        let cuda = nvml.sys_cuda_driver_version().ok().map(|version| format!("{}.{}", version / 1000, version % 1000 / 10));
        Some(Driver { version: nvml.sys_driver_version().ok()?, nvml: nvml.sys_nvml_version().ok(), cuda })
    }

    fn each<T>(&self, of: impl Fn(u32, Result<Device<'_>, NvmlError>) -> T) -> Vec<T> {
        let Ok(nvml) = &self.nvml else { return Vec::new() };
        (0..self.count).map(|index| of(index, nvml.device_by_index(index))).collect()
    }

    pub(super) fn probe(&self) -> Vec<GpuProbe> {
        self.each(|index, device| match device {
            Ok(device) => probe(index, &device),
            Err(e) => GpuProbe { index, error: Some(e.to_string()), ..GpuProbe::default() },
        })
    }

    pub(super) fn sample(&self) -> Vec<GpuSample> {
        self.each(|index, device| match device {
            Ok(device) => sample(index, &device),
            Err(e) => GpuSample { index, error: Some(e.to_string()), ..GpuSample::default() },
        })
    }
}

fn missing(library: &OsStr, error: &NvmlError) -> String {
    let library = library.to_string_lossy();
    match error {
        NvmlError::LibloadingError(_) => {
            format!("{library} cannot be loaded: there is no NVIDIA driver here, or the container does not get it (NVIDIA_DRIVER_CAPABILITIES has to have utility)")
        }
        NvmlError::DriverNotLoaded => format!("{library} is here, and the kernel has no NVIDIA driver loaded"),
        NvmlError::LibRmVersionMismatch => format!("{library} is of another version than the driver in the kernel: the node has to be started anew after the driver was changed"),
        other => format!("{library}: {other}"),
    }
}

fn probe(index: u32, device: &Device<'_>) -> GpuProbe {
    let links: Vec<bool> = (0..NVLINKS).filter_map(|link| device.link_wrapper_for(link).is_active().ok()).collect();
    let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    GpuProbe {
        index,
        name: device.name().ok(),
        uuid: device.uuid().ok(),
        pci: device.pci_info().ok().map(|pci| pci.bus_id),
        memory_mib: device.memory_info().ok().map(|memory| memory.total >> 20),
        max_sm_mhz: device.max_clock_info(Clock::SM).ok(),
        power_limit_w: device.enforced_power_limit().ok().map(watts),
        ecc: device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        ecc_corrected: errors(MemoryError::Corrected),
        ecc_uncorrected: errors(MemoryError::Uncorrected),
        nvlinks: (!links.is_empty()).then(|| links.iter().map(|up| u32::from(*up)).sum()),
        throttle: throttle(device),
        mig: device.mig_mode().ok().map(|mode| mode.current != 0),
        error: None,
    }
}

fn sample(index: u32, device: &Device<'_>) -> GpuSample {
    let (used, error) = match device.utilization_rates() {
        Ok(rates) => (Some(rates.gpu), None),
        // MIG has no figure for the whole GPU; that is no fault.
        Err(NvmlError::NotSupported) => (None, None),
        Err(e) => (None, Some(e.to_string())),
    };
    GpuSample {
        index,
        used,
        memory_mib: device.memory_info().ok().map(|memory| memory.used >> 20),
        power_w: device.power_usage().ok().map(watts),
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        sm_mhz: device.clock_info(Clock::SM).ok(),
        memory_mhz: device.clock_info(Clock::Memory).ok(),
        throttle: throttle(device),
        ecc_uncorrected: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        error,
    }
}

fn throttle(device: &Device<'_>) -> Vec<String> {
    let now = device.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
    REASONS.iter().filter(|(reason, _)| now.contains(*reason)).map(|(_, words)| (*words).to_owned()).collect()
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}
