"""Fits with confidence intervals: pure functions on NumPy arrays, frozen results."""

from widthwise.fit.intervals import CONFIDENCE as CONFIDENCE
from widthwise.fit.intervals import Estimate as Estimate
from widthwise.fit.intervals import mean_of as mean_of
from widthwise.fit.intervals import student as student
from widthwise.fit.losslaw import LossLaw as LossLaw
from widthwise.fit.losslaw import fit_loss_law as fit_loss_law
from widthwise.fit.optimum import Optimum as Optimum
from widthwise.fit.optimum import find_optima as find_optima
from widthwise.fit.powerlaw import PowerLaw as PowerLaw
from widthwise.fit.powerlaw import exponent as exponent
from widthwise.fit.takeover import Takeover as Takeover
from widthwise.fit.takeover import fit_takeover as fit_takeover
from widthwise.fit.transfer import TOLERANCE as TOLERANCE
from widthwise.fit.transfer import Prediction as Prediction
from widthwise.fit.transfer import Reuse as Reuse
from widthwise.fit.transfer import Transfer as Transfer
from widthwise.fit.transfer import TransferOutcome as TransferOutcome
from widthwise.fit.transfer import TransferVerdict as TransferVerdict
from widthwise.fit.transfer import fit_transfer as fit_transfer
from widthwise.fit.transfer import judge as judge
from widthwise.fit.trials import Curve as Curve
from widthwise.fit.trials import Edge as Edge
from widthwise.fit.trials import Trial as Trial
from widthwise.fit.trials import curves as curves
from widthwise.fit.trials import first_unstable as first_unstable
from widthwise.fit.trials import mean_loss as mean_loss
