//! The measurements as one picture with several charts.

use std::{error::Error, path::Path, time::Duration};

use dlock_testlab::Stop;
use plotters::{
    coord::{Shift, ranged1d::SegmentValue},
    prelude::{
        ChartBuilder, DrawingArea, Histogram, IntoDrawingArea, IntoSegmentedCoord, SVGBackend,
    },
    style::{BLUE, Color, WHITE},
};

use crate::figures::Figures;

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (1200, 1000);

/// The bars of each store: the whole bar is light, and the part in `dark` is dark.
struct Bars<'a> {
    title: &'a str,
    light: Vec<f64>,
    dark: Vec<f64>,
}

/// Draws the picture.
pub(crate) fn draw(all: &[Figures], file: &Path) -> Result<(), Stop> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let cut = |f: &Figures| f.faults.cut.map(|cut| (cut.passed, cut.told)).unwrap_or_default();
    let of = |figure: &dyn Fn(&Figures) -> f64| all.iter().map(figure).collect::<Vec<_>>();
    let charts = [
        Bars {
            title: "lock and release: ms (dark: p50, light: p99)",
            light: of(&|f| ms(f.speed.p99)),
            dark: of(&|f| ms(f.speed.p50)),
        },
        Bars {
            title: "contended: hand-offs a second",
            light: Vec::new(),
            dark: of(&|f| f.speed.hand_offs),
        },
        Bars {
            title: "holder cut off: s (dark: it knows, light: next has it)",
            light: of(&|f| cut(f).0.as_secs_f64()),
            dark: of(&|f| cut(f).1.as_secs_f64()),
        },
        Bars {
            title: "holder killed: s until the next has the lock",
            light: Vec::new(),
            dark: of(&|f| f.faults.orphan.as_secs_f64()),
        },
        Bars {
            title: "server killed: s until it answers again",
            light: Vec::new(),
            dark: of(&|f| f.faults.restart.map_or(0.0, |restart| restart.away.as_secs_f64())),
        },
    ];
    let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
    let paint = || -> Drawn {
        let whole = SVGBackend::new(file, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        for (area, bars) in whole.split_evenly((3, 2)).iter().zip(&charts) {
            bars.draw(area, &names)?;
        }
        whole.present()?;
        Ok(())
    };
    paint().map_err(|error| Stop::failed(format!("{}: {error}", file.display())))
}

impl Bars<'_> {
    fn draw(&self, area: &Area<'_>, names: &[&str]) -> Drawn {
        let top = self.light.iter().chain(&self.dark).copied().fold(0.001, f64::max) * 1.1;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(52)
            .build_cartesian_2d((0..names.len()).into_segmented(), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|at| match at {
                SegmentValue::CenterOf(at) => names.get(*at).copied().unwrap_or("").to_owned(),
                _ => String::new(),
            })
            .draw()?;
        for (values, style) in
            [(&self.light, BLUE.mix(0.3).filled()), (&self.dark, BLUE.mix(0.8).filled())]
        {
            let bars = values.iter().copied().enumerate();
            chart.draw_series(Histogram::vertical(&chart).style(style).margin(14).data(bars))?;
        }
        Ok(())
    }
}
