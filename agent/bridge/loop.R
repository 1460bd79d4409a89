# SPDX-License-Identifier: Apache-2.0
# The cells of an R context: agent/bridge/driver.py says how they come. A visible value is printed where it
# stands, as R's own prompt does, but the last, which is the result; plots are results.
.parbake <- local({
	to <- file("/proc/self/fd/7", "rb", raw = TRUE)
	back <- file("/proc/self/fd/8", "wb", raw = TRUE)
	results <- file("/proc/self/fd/4", "wb", raw = TRUE)
	options(warn = 1)
	plots <- tempfile("plots")
	dir.create(plots)

	field <- function() {
		length <- readBin(to, "integer", 1L, 4L, endian = "little")
		if (length(length) == 0L) quit("no")
		text <- if (length > 0L) rawToChar(readBin(to, "raw", length)) else ""
		Encoding(text) <- "UTF-8"
		text
	}
	answer <- function(...) {
		for (text in list(...)) {
			bytes <- charToRaw(enc2utf8(text))
			writeBin(length(bytes), back, 4L, endian = "little")
			writeBin(bytes, back)
		}
		flush(back)
	}
	json <- function(text) {
		text <- gsub("\\", "\\\\", enc2utf8(text), fixed = TRUE)
		text <- gsub("\"", "\\\"", text, fixed = TRUE)
		text <- gsub("\n", "\\n", gsub("\t", "\\t", gsub("\r", "\\r", text, fixed = TRUE), fixed = TRUE), fixed = TRUE)
		paste0("\"", gsub("[[:cntrl:]]", "\ufffd", text), "\"")
	}
	emit <- function(kind, mime, text) {
		line <- sprintf("{\"type\": \"%s\", \"data\": {%s}}\n", kind, paste0(json(mime), ": ", vapply(text, json, ""), collapse = ", "))
		if (nchar(line, "bytes") > 8388608L)
			line <- sprintf("{\"type\": \"%s\", \"data\": {\"text/plain\": \"a result that is too long\"}}\n", kind)
		writeBin(charToRaw(line), results)
		flush(results)
	}
	base64 <- function(bytes) {
		letters <- c(LETTERS, base::letters, 0:9, "+", "/")
		pad <- (3L - length(bytes) %% 3L) %% 3L
		n <- matrix(c(as.integer(bytes), integer(pad)), 3L)
		at <- rbind(n[1, ] %/% 4L, (n[1, ] %% 4L) * 16L + n[2, ] %/% 16L, (n[2, ] %% 16L) * 4L + n[3, ] %/% 64L, n[3, ] %% 64L)
		text <- paste(letters[at + 1L], collapse = "")
		if (pad > 0L) paste0(substr(text, 1L, nchar(text) - pad), strrep("=", pad)) else text
	}
	show_plots <- function() {
		graphics.off()
		for (name in sort(list.files(plots, full.names = TRUE))) {
			emit("display", "image/png", base64(readBin(name, "raw", file.size(name))))
			unlink(name)
		}
	}
	options(device = function(...) grDevices::png(file.path(plots, "plot%03d.png"), 640, 480, type = "cairo"))

	set <- function(pairs) {
		for (pair in pairs) {
			at <- regexpr("=", pair, fixed = TRUE)
			if (at > 1L) do.call(Sys.setenv, setNames(list(substring(pair, at + 1L)), substr(pair, 1L, at - 1L)))
		}
	}
	run <- function(code) {
		parts <- parse(text = code, keep.source = FALSE, encoding = "UTF-8")
		for (i in seq_along(parts)) {
			made <- withVisible(eval(parts[[i]], globalenv()))
			if (!made$visible) next
			if (i < length(parts)) print(made$value)
			else emit("result", "text/plain", paste(utils::capture.output(print(made$value)), collapse = "\n"))
		}
	}
	cell <- function(code) tryCatch({
		run(code)
		show_plots()
		c("ok", "", "")
	}, error = function(e) {
		where <- if (is.null(conditionCall(e))) "" else paste0(" in ", paste(deparse(conditionCall(e), nlines = 1L), collapse = ""))
		c("Error", conditionMessage(e), paste0("Error", where, ": ", conditionMessage(e)))
	}, interrupt = function(e) c("KeyboardInterrupt", "", "KeyboardInterrupt"))

	list(loop = function() {
		answer("ready")
		repeat {
			n <- as.integer(field())
			pairs <- vapply(seq_len(abs(n)), function(i) field(), "")
			code <- field()
			names <- sub("=.*", "", pairs)
			old <- Sys.getenv(names, NA, names = FALSE)
			set(pairs)
			end <- if (n < 0L) c("ok", "", "") else cell(code)
			if (n > 0L) {
				Sys.unsetenv(names[is.na(old)])
				set(paste0(names, "=", old)[!is.na(old)])
			}
			flush(stdout())
			answer(end[1], end[2], end[3])
		}
	})
})
repeat tryCatch(.parbake$loop(), interrupt = function(e) NULL)
