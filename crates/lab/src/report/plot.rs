//! Plots as SVG: bars side by side, or lines.

use anyhow::anyhow;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

const SIZE: (u32, u32) = (1080, 480);

/// Width of the legend to the right.
const LEGEND: u32 = 300;

/// Told apart by people who see few colours, too (the palette of Okabe and Ito, and darker ones of the same hues).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(80, 80, 80),
    RGBColor(0, 60, 100),
    RGBColor(120, 80, 0),
    RGBColor(0, 85, 60),
    RGBColor(170, 170, 170),
];

/// A plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Heading.
    pub title: String,
    /// What goes to the right.
    pub x: String,
    /// What goes up.
    pub y: String,
    /// Bars: names of the groups, to which the points' x values 0, 1, … refer. Empty: lines.
    pub groups: Vec<String>,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Equal factors are equal heights: for values that differ by orders of magnitude.
    #[serde(default)]
    pub logarithmic: bool,
}

/// Points of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The drawing.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.draw(&mut text)
            .map_err(|error| anyhow!("cannot draw {}: {error}", self.title))?;
        Ok(text)
    }

    fn most(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        let most = points.map(of).filter(|value| value.is_finite());
        most.fold(0.0, f64::max)
    }

    /// Where an axis from 0 on ends.
    fn end(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        let most = self.most(of);
        if most > 0.0 { most * 1.08 } else { 1.0 }
    }

    /// Bottom and top, as they are drawn.
    fn heights(&self) -> (f64, f64) {
        if !self.logarithmic {
            return (0.0, self.end(|point| point.1));
        }
        let points = self.series.iter().flat_map(|series| &series.points);
        let positive = points.map(|point| point.1).filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return (0.0, 1.0);
        }
        let top = self.most(|point| point.1).log10().ceil();
        let bottom = least.log10().floor();
        (bottom, top.max(bottom + 1.0))
    }

    /// At what height a value is drawn.
    fn height(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => f64::MIN,
            false => value,
        }
    }

    /// What stands at a height.
    fn label(&self, height: f64) -> String {
        match self.logarithmic {
            // Only powers of ten.
            true if height.fract().abs() > 1e-6 => String::new(),
            true => super::figure(10f64.powf(height)),
            false => super::figure(height),
        }
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (area, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        let right = match self.groups.len() {
            0 => self.end(|point| point.0),
            groups => groups as f64,
        };
        let (bottom, top) = self.heights();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..right, bottom..top)?;
        let group_name = |x: &f64| self.group_name(*x);
        let number = |value: &f64| super::figure(*value);
        let height = |value: &f64| self.label(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .max_light_lines(0)
            .y_label_formatter(&height);
        if self.logarithmic {
            mesh.y_labels((top - bottom) as usize + 1);
        }
        match self.groups.is_empty() {
            true => mesh.x_label_formatter(&number).draw()?,
            false => mesh
                .disable_x_mesh()
                .x_labels(self.groups.len() * 2 + 1)
                .x_label_formatter(&group_name)
                .draw()?,
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points = series.points.iter();
            let points = points.map(|(x, y)| (*x, self.height(*y).max(bottom)));
            if self.groups.is_empty() {
                let points: Vec<(f64, f64)> = points.collect();
                let dots = points.iter().map(|p| Circle::new(*p, 3, colour.filled()));
                chart.draw_series(dots)?;
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            } else {
                let bars = points.map(|point| self.bar(number, point, bottom, colour));
                chart.draw_series(bars)?;
            }
        }
        self.draw_legend(&legend)?;
        root.present()?;
        Ok(())
    }

    /// Names and colours in a column of their own: nothing that is drawn lies beneath.
    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let y = 52 + 20 * number as i32;
            area.draw(&Rectangle::new([(4, y), (16, y + 10)], colour.filled()))?;
            area.draw(&Text::new(
                series.name.clone(),
                (22, y),
                ("sans-serif", 12).into_font(),
            ))?;
        }
        Ok(())
    }

    /// The name of a group stands under its middle.
    fn group_name(&self, x: f64) -> String {
        let is_middle = (x.fract() - 0.5).abs() < 1e-6;
        let name = self.groups.get(x as usize).filter(|_| is_middle);
        name.cloned().unwrap_or_default()
    }

    fn bar(
        &self,
        number: usize,
        (group, value): (f64, f64),
        bottom: f64,
        colour: RGBColor,
    ) -> Rectangle<(f64, f64)> {
        let width = 0.8 / self.series.len() as f64;
        let left = group + 0.1 + width * number as f64;
        let right = left + width * 0.92;
        Rectangle::new([(left, bottom), (right, value)], colour.filled())
    }
}
