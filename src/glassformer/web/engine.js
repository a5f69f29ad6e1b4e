// The engine: all that the page needs to run a model, and nothing that draws. A worker is made from
// the text of this script, and listens; so nothing here may need a page around it.

import { listen } from "./score.js";
import { sentence } from "./step_summary.js";
import { sources } from "./stream.js";
import { checkpoint } from "./save_checkpoint.js";
import { taotp } from "./taotp.js";

export const ENGINE = { sentence, sources, checkpoint, taotp };

if (typeof document === "undefined") listen(globalThis);
