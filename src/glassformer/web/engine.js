// The modules that run a model without a page. A worker runs the text of this script.

import { listen } from "./score.js";
import { summarizeStep } from "./step_summary.js";
import { logitContributions } from "./stream.js";
import { checkpoint } from "./save_checkpoint.js";
import { taotpText } from "./taotp.js";

export const ENGINE = { summarizeStep, logitContributions, checkpoint, taotpText };

if (typeof document === "undefined") listen(globalThis);
